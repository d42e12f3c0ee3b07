/** @import { AssetSummary, Connection, MirrorEvent, Status } from './types.d.ts' */
import { queryOf } from './api.js';
import { ago, bytes, number, playTime, when } from './format.js';
import { nameOf, subjectOf } from './names.js';
import { thumbnailOf } from './preview.js';
import { bar } from './state-bar.js';
import { repeat } from './vendor/lit-html/directives/repeat.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { eventWords, sentence, stateNames, typeName } from './words.js';

/** @param {string} tone @param {string} word */
export const pill = (tone, word) => html`<span class="pill ${tone}">${word}</span>`;

/** The tags of a connection. Each leads to the connections that have it. @param {Pick<Connection, 'tags'>} connection */
export const tagPills = ({ tags }) =>
  Object.entries(tags).map(
    ([key, value]) => html`<a class="pill tag" href="#/${queryOf({ tag: `${key}=${value}` })}">${key}=${value}</a> `,
  );

/** @type {Record<string, string>} */
const tones = {
  mirrored: 'good',
  transferring: 'go',
  processing: 'go',
  pending: 'plain',
  failed: 'bad',
  unavailable: 'warn',
  gone: 'plain',
};
/** @param {Pick<AssetSummary, 'state' | 'skipped'>} asset */
export const statePill = ({ state, skipped }) =>
  skipped ? pill('plain', 'Skipped') : pill(tones[state] ?? 'plain', stateNames[state] ?? state);

/** A relative time, with the exact one as its title. @param {string | null | undefined} at @param {string} [never] */
export const time = (at, never = 'never') =>
  at ? html`<time datetime=${at} title=${when(at)}>${ago(at)}</time>` : html`<span class="soft">${never}</span>`;

/** @param {string} text */
export const withLocalTimes = (text) => text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (at) => when(at));

/** Shows text in backticks as code. @param {string} text */
export const withCode = (text) =>
  text.split('`').map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : withLocalTimes(part)));

/** The size of an asset: in the bucket, or else in the library. @param {Pick<AssetSummary, 'bytes' | 'size'>} asset */
export const sizeOf = ({ bytes: stored, size }) => bytes(stored ?? size);

/** The mirrored share of the assets that have a file. @param {Pick<Status['assets'], 'byState' | 'expected'>} assets */
export const share = ({ byState, expected }) => (expected === 0 ? 1 : byState.mirrored / expected);

/** Rounded down: 100 % means all. @param {number} part */
export const percent = (part) => `${part >= 1 ? 100 : (Math.floor(part * 1000) / 10).toFixed(1)} %`;

/** @param {string} text */
export const empty = (text) => html`<p class="empty">${text}</p>`;

/** @param {number} lines */
export const skeleton = (lines) =>
  html`<div class="skeleton" aria-hidden="true">${Array.from({ length: lines }, () => html`<i></i>`)}</div>`;

/** The error of a part of the page. @param {Error | undefined} error */
export const trouble = (error) => (error ? html`<p class="banner bad" role="alert">${error.message}</p>` : nothing);

/** Why nothing is transferred at all. @param {Status | undefined} now */
export const outages = (now) =>
  html`${!now || now.bucket.ok ? nothing : html`<p class="banner bad" role="alert"><strong>The bucket is unavailable, so all assets wait:</strong> ${now.bucket.reason}</p>`}
    ${now?.queues === null ? html`<p class="banner warn"><strong>The queue does not answer.</strong> Jobs wait; nothing is lost.</p>` : nothing}`;

/** The head of a table. @param {(string | { right?: string, hidden?: string })[]} titles */
export const head = (...titles) =>
  html`<thead role="rowgroup"><tr role="row">${titles.map((title) => {
    if (typeof title === 'string') return html`<th role="columnheader" scope="col">${title}</th>`;
    if (title.right) return html`<th role="columnheader" scope="col" class="right">${title.right}</th>`;
    return html`<th role="columnheader" scope="col"><span class="hidden">${title.hidden}</span></th>`;
  })}</tr></thead>`;

/** @param {Connection} connection */
export const companiesOf = ({ companies }) => companies.map(({ name }) => name).join(', ') || 'No company';

/** @param {Connection[]} connections */
export const connectionTable = (connections) => html`<table role="table" class="cards small-figures">
  ${head('Connection', 'State', 'Mirrored', { right: 'Stored' }, 'Last sync', 'Next sync')}
  <tbody role="rowgroup">${repeat(
    connections,
    ({ id }) => id,
    (connection) => {
      const { condition, counts, bytes: stored } = connection;
      const { failed } = counts.byState;
      return html`<tr role="row">
        <th role="rowheader" scope="row"><a href="#/connections/${connection.id}">${nameOf(connection)}</a>
          <small>${companiesOf(connection)}</small>${tagPills(connection)}</th>
        <td role="cell" data-label="State" class="whole">${pill(condition.tone, condition.text)}${
          failed > 0 && condition.code !== 'assets_failed' ? html` ${pill('bad', `${number(failed)} failed`)}` : nothing
        }</td>
        <td role="cell" data-label="Mirrored" class="whole"><div class="progress">${bar(counts.byState)}<span class="figures">${number(counts.byState.mirrored)} <span class="soft">of ${number(counts.expected)}</span></span></div></td>
        <td role="cell" data-label="Stored" class="right figures">${bytes(stored)}</td>
        <td role="cell" data-label="Last sync">${time(connection.lastSyncAt, 'not yet')}</td>
        <td role="cell" data-label="Next sync">${time(connection.nextSyncAt, 'none')}</td>
      </tr>`;
    },
  )}</tbody>
</table>`;

/** The matching passages of the transcript, each with a link that plays it. @param {AssetSummary} asset */
const hitsOf = ({ id, said = [] }) =>
  said.length === 0
    ? nothing
    : html`<ul class="hits">${said.map(
        ({ startMs, text, marks }) =>
          html`<li><a href="#/assets/${encodeURIComponent(id)}?at=${startMs / 1000}">${playTime(startMs)}</a> ${marked(text, marks)}</li>`,
      )}</ul>`;

/** @param {string} text @param {[number, number][]} marks */
function marked(text, marks) {
  const parts = [];
  let end = 0;
  for (const [from, to] of marks) {
    parts.push(text.slice(end, from), html`<mark>${text.slice(from, to)}</mark>`);
    end = to;
  }
  return [...parts, text.slice(end)];
}

/**
 * @param {AssetSummary[]} assets
 * @param {((asset: AssetSummary) => void) | undefined} retry undefined: no retries
 * @param {(asset: AssetSummary) => unknown} [checkBox]
 */
export const assetTable = (assets, retry, checkBox) => html`<table role="table" class="cards">
  ${head(...(checkBox ? [{ hidden: 'Selected' }] : []), 'Asset', 'State', 'Reason and next step', { right: 'Size' }, { hidden: 'Actions' })}
  <tbody role="rowgroup">${repeat(
    assets,
    ({ id }) => id,
    (asset) => html`<tr role="row">
      ${checkBox ? html`<td role="cell" class="picks">${checkBox(asset)}</td>` : nothing}
      <th role="rowheader" scope="row"><a href="#/assets/${encodeURIComponent(asset.id)}">${asset.name ?? asset.id}</a>
        <small>${[asset.type && typeName(asset.type), asset.projectName ?? asset.projectId].filter(Boolean).join(' · ') || asset.id}</small>${hitsOf(asset)}</th>
      <td role="cell" data-label="State">${statePill(asset)}</td>
      <td role="cell" data-label="Reason" class="why">${asset.reason?.text ?? ''}${
        asset.nextAt && asset.state !== 'transferring'
          ? html` <span class="soft">${asset.reason ? html`· ${nextWords(asset)}` : sentence(nextWords(asset))} ${time(asset.nextAt)}</span>`
          : nothing
      }${asset.state === 'mirrored' && !asset.nextAt ? html`<span class="soft">In the bucket since ${time(asset.mirroredAt)}</span>` : nothing}</td>
      <td role="cell" data-label="Size" class="right figures">${sizeOf(asset)}</td>
      <td role="cell" class="right">${
        retry && canRetry(asset)
          ? html`<button class="small" @click=${() => retry(asset)} aria-label="Retry ${asset.name ?? asset.id}">Retry</button>`
          : nothing
      }</td>
    </tr>`,
  )}</tbody>
</table>`;

/** @param {AssetSummary[]} assets @param {((asset: AssetSummary) => unknown) | undefined} checkBox */
export const assetGrid = (assets, checkBox) =>
  html`<ul class="grid">${repeat(
    assets,
    ({ id }) => id,
    (asset) => html`<li>${checkBox ? checkBox(asset) : nothing}<a href="#/assets/${encodeURIComponent(asset.id)}">
    <span class="picture">${thumbnailOf(asset)}</span>
    <span class="name">${asset.name ?? asset.id}</span></a>
    <small>${[asset.type && typeName(asset.type), sizeOf(asset)].filter(Boolean).join(' · ')}</small>
    ${hitsOf(asset)}${asset.state === 'mirrored' ? nothing : statePill(asset)}</li>`,
  )}</ul>`;

/** @param {Pick<AssetSummary, 'state' | 'skipped' | 'nextAt' | 'transcript' | 'thumbnail'>} asset */
export const canRetry = ({ state, skipped, nextAt, transcript, thumbnail }) =>
  !skipped &&
  (['failed', 'unavailable'].includes(state) ||
    (nextAt !== null && new Date(nextAt).getTime() > Date.now()) ||
    (state === 'mirrored' && [transcript, thumbnail].includes('gave_up')));

/** @param {AssetSummary} asset */
function nextWords({ state, nextAt, transcript }) {
  if (nextAt && new Date(nextAt).getTime() <= Date.now()) return 'due';
  if (state === 'mirrored') return transcript === 'pending' ? 'checking for a transcript' : 'checking for a thumbnail';
  return 'next try';
}

/** @param {MirrorEvent[]} events */
export const eventList = (events) =>
  html`<ul class="events">${repeat(
    events,
    ({ id }) => id,
    (event) => {
      const { before, after, reason, tone } = eventWords(event);
      const link = event.assetId
        ? html`<a href="#/assets/${encodeURIComponent(event.assetId)}">${subjectOf(event)}</a>`
        : event.connectionId
          ? html`<a href="#/connections/${event.connectionId}">${subjectOf(event)}</a>`
          : after && !before
            ? 'Something'
            : nothing;
      const { verificationId } = event.data;
      const findings =
        typeof verificationId === 'string'
          ? html`. <a href="#/verify/${verificationId}">See the findings</a>`
          : nothing;
      return html`<li class=${tone}><span>${before} ${link} ${after}${findings}${reason ? html`<small>${withCode(reason)}</small>` : nothing}</span>${time(event.at)}</li>`;
    },
  )}</ul>`;

/**
 * The rows of a list, or why there are none. `what`: the word for the rows in the button "Show more"; without it, no button.
 * @template T
 * @param {{ rows: T[] | undefined, error: Error | undefined, isMore: boolean, more: () => unknown }} list
 * @param {number} lines while it loads
 * @param {(rows: T[]) => unknown} show
 * @param {string} none
 * @param {string} [what]
 */
export function listed({ rows, error, isMore, more }, lines, show, none, what) {
  if (rows === undefined) return html`${trouble(error)}${skeleton(lines)}`;
  if (rows.length === 0) return html`${trouble(error)}${empty(none)}`;
  return html`${trouble(error)}${show(rows)}${what ? moreButton(isMore, more, what) : nothing}`;
}

/** Shown while the data of a page loads, or cannot be loaded. @param {Error | undefined} error */
export const notYet = (error) => (error ? trouble(error) : html`<section class="card">${skeleton(6)}</section>`);

/** @param {boolean} isMore @param {() => void} more @param {string} what */
export const moreButton = (isMore, more, what) =>
  isMore ? html`<p class="more"><button @click=${more}>Show more ${what}</button></p>` : nothing;
