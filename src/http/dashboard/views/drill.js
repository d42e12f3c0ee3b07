/** @import { Drill, DrillSummary } from '../types.d.ts' */
import { api } from '../api.js';
import { bytes, counted, duration, number, when } from '../format.js';
import { later } from '../lists.js';
import { loaderOf } from '../loader.js';
import { notYet, pill, time, trouble } from '../parts.js';
import { say } from '../state.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** Between two requests while it runs. */
const pollMs = 1000;

/** @type {ReturnType<typeof loaderOf<Drill>>} */
const loader = loaderOf(
  (id) => api(`/drills/${encodeURIComponent(id)}`),
  (drill, before) => {
    if (!ended(drill)) refreshSoon();
    else if (before && !ended(before)) say(`The drill ${drillOutcome(drill).word.toLowerCase()}.`);
  },
);
const refreshSoon = later(() => {
  if (location.hash === `#/drills/${loader.id}`) loader.refresh();
}, pollMs);
const ended = (/** @type {DrillSummary} */ { status }) => status === 'passed' || status === 'failed';

/** @param {Pick<DrillSummary, 'status'>} of @returns {{ tone: string, word: string }} */
export const drillOutcome = ({ status }) =>
  ({
    waiting: { tone: 'plain', word: 'Waiting' },
    running: { tone: 'go', word: 'Running' },
    passed: { tone: 'good', word: 'Passed' },
    failed: { tone: 'bad', word: 'Failed' },
  })[status];

export const drillView = {
  title: 'Restore drill',
  /** @param {string[]} path */
  open: ([wanted = '']) => loader.open(wanted),
  refresh: () => (loader.found && ended(loader.found) ? Promise.resolve() : loader.refresh()),
  render() {
    const { found: drill, error } = loader;
    if (!drill) return notYet(error);
    const { tone, word } = drillOutcome(drill);
    return html`
      <nav aria-label="You are here" class="crumbs"><a href="#/assurance">Assurance</a></nav>
      ${trouble(error)}
      <section class="card" aria-labelledby="drill-title">
        <div class="head"><div><h1 id="drill-title" tabindex="-1">Restore drill</h1>
          <p class="soft">${drill.scheduled ? 'Scheduled' : 'Requested by an operator'} · ${drill.finishedAt ? html`ended ${time(drill.finishedAt)}, ${when(drill.finishedAt)}` : html`requested ${time(drill.requestedAt)}`}</p></div>
          <p class="state">${pill(tone, word)}</p></div>
        ${drill.error ? html`<p class="banner ${drill.status === 'failed' ? 'bad' : 'warn'}"><strong>${drill.status === 'failed' ? 'It could not run:' : 'It will be tried again:'}</strong> ${drill.error}</p>` : nothing}
        ${drill.failures.map(({ text }) => html`<p class="banner bad">${text}</p>`)}
        ${ended(drill) ? nothing : html`<p class="soft">A worker restores the records from the bucket into a scratch schema, and reads a sample of the files.</p>`}
        ${drill.report && drill.recovery ? facts(drill, drill.report, drill.recovery) : nothing}
      </section>
      ${drill.report ? findings(drill.report) : nothing}`;
  },
};

/** @param {Drill} drill @param {NonNullable<Drill['report']>} report @param {NonNullable<Drill['recovery']>} recovery */
function facts({ oldestLoss, lost, key }, { restored, loss, sample, secrets }, { recordsMs, mediaMs, mediaBytes }) {
  const { connections, webhooks, tokens, holds, auditEntries } = loss.onlyInDatabase;
  const fact = (/** @type {string} */ name, /** @type {unknown} */ value, /** @type {unknown} */ more = nothing) =>
    html`<div><dt>${name}</dt><dd>${value} ${more === nothing ? nothing : html`<small>${more}</small>`}</dd></div>`;
  return html`<dl class="facts wide-facts">
      ${fact('Records are restored in', html`<b>${duration(recordsMs / 1000)}</b>`, `measured: ${counted(restored.assets, 'asset')}, ${counted(restored.versions, 'superseded file')}, ${counted(restored.tombstones, 'tombstone')}`)}
      ${fact('All media are read in', mediaMs === null ? '–' : html`<b>${duration(mediaMs / 1000)}</b>`, mediaMs === null ? 'unknown: no file was read' : `extrapolated to ${bytes(mediaBytes)} from the sample`)}
      ${fact('Would be lost', html`<b>${lost === 0 ? 'nothing' : counted(lost ?? 0, 'record')}</b>`, oldestLoss ? `the oldest of them changed at ${when(oldestLoss)}` : `of ${counted(loss.compared, 'asset')} compared`)}
      ${fact('Sample', `${counted(sample.assets, 'asset')}, ${counted(sample.objects, 'object')}`, `${bytes(sample.bytes)} read in ${duration(sample.ms / 1000)}, ${sample.damaged.length + sample.unreadable.length === 0 ? 'all intact' : `${number(sample.damaged.length)} damaged, ${number(sample.unreadable.length)} unreadable`}`)}
      ${fact('Tokens and secrets', `${number(secrets.checked - secrets.unreadable.length)} of ${number(secrets.checked)}`, 'can be decrypted with ENCRYPTION_KEYS')}
      ${fact('Only in the database', counted(connections, 'connection'), `${counted(webhooks, 'webhook endpoint')}, ${counted(tokens, 'API token')}, ${counted(holds, 'protection from removal', 'protections from removal')}, ${counted(auditEntries, 'audit entry', 'audit entries')} of today: only a backup of the database keeps them`)}
      ${fact('Report in the bucket', html`<code>${key}</code>`)}
    </dl>`;
}

/** @param {string} code of a difference between record and database */
const differenceOf = (code) =>
  code === 'record_extra' ? 'record of an asset that the database does not have' : code.replaceAll('_', ' ');

/** @param {NonNullable<Drill['report']>} report */
function findings({ loss, sample, secrets, problems }) {
  const found = [
    ...loss.examples.map(({ assetId, key, code, since }) => ({
      what: key,
      link: code === 'record_extra' ? undefined : assetId,
      text: `${differenceOf(code)}, since ${when(since)}`,
    })),
    ...[...sample.damaged, ...sample.unreadable].map(({ assetId, key, text }) => ({ what: key, link: assetId, text })),
    ...secrets.unreadable.map(({ name, reason }) => ({ what: name, link: undefined, text: reason })),
    ...problems.lines.map((line) => ({ what: line, link: undefined, text: '' })),
  ];
  if (found.length === 0) return nothing;
  return html`<section class="card" aria-labelledby="found-title"><h2 id="found-title">Findings</h2>
    <ul class="events">${found.map(
      ({ what, link, text }) =>
        html`<li class="bad"><span>${link ? html`<a href="#/assets/${encodeURIComponent(link)}">${what}</a>` : what}<small>${text}</small></span></li>`,
    )}</ul></section>`;
}
