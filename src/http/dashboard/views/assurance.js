/** @import { Assurance, DrillSummary } from '../types.d.ts' */
import { act } from '../actions.js';
import { api } from '../api.js';
import { ago, bytes, duration, number, when } from '../format.js';
import { loaderOf } from '../loader.js';
import { empty, head, pill, skeleton, trouble } from '../parts.js';
import { ifMay, rolesNeeded } from '../permissions.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { stateNames } from '../words.js';
import { drillOutcome } from './drill.js';

const loader = loaderOf(async () => {
  const [assurance, { drills }] = await Promise.all([api('/assurance'), api('/drills?limit=10')]);
  return { assurance: /** @type {Assurance} */ (assurance), drills: /** @type {DrillSummary[]} */ (drills) };
});

/** The exact time, and how long ago that is. @param {string | null} at @param {string} [never] */
const exact = (at, never = 'never') =>
  at
    ? html`<time datetime=${at}>${when(at)}<small>${ago(at)}</small></time>`
    : html`<span class="soft">${never}</span>`;

export const assuranceView = {
  title: 'Assurance',
  open: loader.refresh,
  refresh: loader.refresh,
  render() {
    const { assurance: found, drills = [] } = loader.found ?? {};
    return html`
    ${trouble(loader.error)}
    <section class="card" aria-labelledby="assurance-title">
      <div class="head"><div><h1 id="assurance-title" tabindex="-1">Assurance</h1>
        ${
          found
            ? html`<p class="soft">Of ${found.storage}, at ${when(found.at)} (${zone})</p>
              <p class="soft small">Mirror ${found.mirrorId ?? 'without an id'}, asset-mirror ${found.version}</p>`
            : nothing
        }</div>
        <div class="actions no-print"><button @click=${() => print()}>Print</button></div></div>
      ${found ? summary(found) : skeleton(6)}
    </section>
    ${found ? html`${findingsCard(found)}${missingCard(found)}${inventoryCard(found)}` : nothing}
    ${drillsCard(drills)}`;
  },
};

/** A link to a part of this page. It scrolls by script, because the hash of the address names the view. @param {string} id @param {string} words */
const below = (id, words) =>
  html`<a href="#/assurance" @click=${(/** @type {Event} */ event) => {
    event.preventDefault();
    document.getElementById(id)?.scrollIntoView();
  }}>${words}</a>`;

const zone = new Intl.DateTimeFormat('en', { timeZoneName: 'short' })
  .formatToParts()
  .find(({ type }) => type === 'timeZoneName')?.value;

/** @param {Assurance} of */
const summary = (of) => html`<table role="table" class="cards assurance">
  ${head('Question', 'Answer', 'As of', 'Evidence')}
  <tbody role="rowgroup">${of.questions.map(
    ({ code, question, ok, problem, text, at, note }) => html`<tr role="row">
      <th role="rowheader" scope="row">${question} ${ok ? pill('good', 'Good') : problem ? pill('bad', problem) : pill('warn', 'Check')}</th>
      <td role="cell" data-label="Answer"><div>${text}</div></td>
      <td role="cell" data-label="As of"><div>${exact(at)}${note ? html`<small>${note}</small>` : nothing}</div></td>
      <td role="cell" data-label="Evidence">${evidence[code](of)}</td>
    </tr>`,
  )}</tbody></table>`;

/** @type {Record<Assurance['questions'][number]['code'], (of: Assurance) => unknown>} */
const evidence = {
  completeness: ({ findings }) =>
    findings.objects > 0 ? below('findings', 'Findings') : html`<a href="#/assets">Assets</a>`,
  onlyInLibrary: ({ onlyInLibrary }) =>
    onlyInLibrary.ok ? html`<a href="#/activity">Activity</a>` : below('missing', 'Reasons'),
  freshness: () => html`<a href="#/">Connections</a>`,
  verification({ findings }) {
    const foundBy = findings.examples.find(({ verificationId }) => verificationId !== null)?.verificationId;
    return foundBy ? html`<a href="#/verify/${foundBy}">Verification</a>` : html`<a href="#/verify">Verifications</a>`;
  },
  inventory: ({ inventory }) => (inventory ? below('inventory', 'Manifest') : nothing),
  drill: ({ drill }) => (drill ? html`<a href="#/drills/${drill.id}">Drill</a>` : nothing),
};

/** @param {Assurance} of */
const findingsCard = ({ findings: { objects, examples } }) =>
  objects === 0
    ? nothing
    : html`<section class="card" id="findings" aria-labelledby="findings-title">
        <h2 id="findings-title">Problems in the bucket that are not repaired yet</h2>
        ${objects > examples.length ? html`<p class="soft">The ${examples.length} newest of ${number(objects)}.</p>` : nothing}
        <table role="table" class="cards small-figures">
          ${head('Object', 'Finding', 'Found', 'By')}
          <tbody role="rowgroup">${examples.map(
            ({ assetId, key, text, at, verificationId }) => html`<tr role="row">
              <th role="rowheader" scope="row"><a href="#/assets/${encodeURIComponent(assetId)}"><code>${key}</code></a></th>
              <td role="cell" data-label="Finding" class="whole why">${text}</td>
              <td role="cell" data-label="Found" class="whole">${exact(at)}</td>
              <td role="cell" data-label="By" class="whole">${verificationId ? html`<a href="#/verify/${verificationId}">Verification</a>` : 'Scrub'}</td>
            </tr>`,
          )}</tbody></table>
      </section>`;

/** @param {Assurance} of */
const missingCard = ({
  completeness: { missing },
}) => html`<section class="card" id="missing" aria-labelledby="missing-title">
  <h2 id="missing-title">What is missing, and why</h2>
  ${
    missing.length === 0
      ? empty('Nothing: all known assets are mirrored.')
      : html`<table role="table" class="cards small-figures">
        ${head('State', 'Reason', { right: 'Assets' }, { right: 'Size' }, 'Since')}
        <tbody role="rowgroup">${missing.map(
          ({ state, skipped, reason, assets, bytes: size, unknownSize, since }) => html`<tr role="row">
            <th role="rowheader" scope="row"><a href="#/assets?${skipped ? 'skipped=true' : `state=${state}`}">${skipped ? 'Skipped by filters' : stateNames[state]}</a></th>
            <td role="cell" data-label="Reason" class="whole why"><div>${reason?.text ?? 'To be transferred'}${
              reason && assets > 1 ? html` <span class="soft">(reason of one of them)</span>` : nothing
            }</div></td>
            <td role="cell" data-label="Assets" class="right figures">${number(assets)}</td>
            <td role="cell" data-label="Size" class="right figures">${bytes(unknownSize < assets ? size : null)}</td>
            <td role="cell" data-label="Since" class="whole">${exact(since)}</td>
          </tr>`,
        )}</tbody></table>`
  }
</section>`;

/** @param {Assurance} of */
const inventoryCard = ({ inventory }) =>
  inventory === null
    ? nothing
    : html`<section class="card" id="inventory" aria-labelledby="inventory-title">
        <h2 id="inventory-title">${inventory.keyId ? 'The last signed inventory' : 'The last inventory'}</h2>
        <dl class="facts wide-facts">
          <div><dt>Manifest in the bucket</dt><dd><code>${inventory.key}</code></dd></div>
          <div><dt>SHA-256 of the manifest</dt><dd><code>${inventory.sha256}</code></dd></div>
          <div><dt>Fingerprint of the key</dt><dd>${
            inventory.keyId ? html`<code>${inventory.keyId}</code>` : 'It is not signed: SIGNING_KEY is not set'
          }</dd></div>
        </dl>
      </section>`;

/** @param {DrillSummary[]} drills */
const drillsCard = (drills) => html`<section class="card" aria-labelledby="drills-title">
  <div class="head"><h2 id="drills-title">Restore drills</h2>
    ${ifMay('startDrill', () => html`<button class="no-print" @click=${() => act(start, loader.refresh)}>Start a drill</button>`)}</div>
  ${rolesNeeded({ 'Start a drill': 'startDrill' })}
  ${
    drills.length === 0
      ? empty('No drill yet.')
      : html`<table role="table" class="cards small-figures">
        ${head('Requested', 'Result', { right: 'Records restored in' }, { right: 'Media read in' })}
        <tbody role="rowgroup">${drills.map((drill) => {
          const { tone, word } = drillOutcome(drill);
          const { recordsMs, mediaMs = null } = drill.recovery ?? {};
          return html`<tr role="row">
            <th role="rowheader" scope="row"><a href="#/drills/${drill.id}">${when(drill.requestedAt)}</a>
              <small>${drill.scheduled ? 'Scheduled' : 'By an operator'}</small></th>
            <td role="cell" data-label="Result" class="whole">${pill(tone, word)}</td>
            <td role="cell" data-label="Records restored in" class="right figures">${recordsMs === undefined ? '' : duration(recordsMs / 1000)}</td>
            <td role="cell" data-label="Media read in" class="right figures">${mediaMs === null ? '' : duration(mediaMs / 1000)}</td>
          </tr>`;
        })}</tbody></table>`
  }
</section>`;

async function start() {
  const { id } = await api('/drills', { method: 'POST', body: {} });
  location.hash = `#/drills/${id}`;
  return 'A drill was requested.';
}
