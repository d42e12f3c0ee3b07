/** @import { AssetSummary, Connection, Sync } from '../types.d.ts' */
import { act, pauseOrResume, resync, retryAsset, retryFailed } from '../actions.js';
import { api } from '../api.js';
import { disconnectDialog, linkDialog, planDialog } from '../dialogs.js';
import { bytes, counted, day, duration, number } from '../format.js';
import { listOf } from '../lists.js';
import { loaderOf } from '../loader.js';
import { nameOf } from '../names.js';
import { assetTable, companiesOf, head, listed, notYet, outages, pill, tagPills, time, trouble } from '../parts.js';
import { ifMay, may, rolesNeeded } from '../permissions.js';
import { resyncDialog } from '../resync-dialog.js';
import { settingsDialog } from '../settings-dialog.js';
import { draw, say, state } from '../state.js';
import { bar, legend } from '../state-bar.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { verifyDialog } from '../verify-dialog.js';
import { aboutCondition, heldWords, stateNames, typeName, withFile } from '../words.js';

/** @type {ReturnType<typeof loaderOf<Connection>>} */
const loader = loaderOf((id) => api(`/connections/${encodeURIComponent(id)}`));
/** @type {ReturnType<typeof listOf<AssetSummary>>} */
const assets = listOf('/assets', 'assets');
/** @type {ReturnType<typeof listOf<Sync>>} */
const syncs = listOf('/syncs', 'syncs');
/** The filter of its assets. */
let shown = 'failed';

const filter = () => assets.filter({ connectionId: loader.id, state: shown });

/** @type {Record<string, string>} */
const noneOf = {
  failed: 'No failed assets.',
  pending: 'No pending assets.',
  processing: 'No video is processing.',
  unavailable: 'The library has a file for every asset.',
};

const refresh = () => Promise.all([loader.refresh(), assets.refresh(), syncs.refresh()]);

export const connectionView = {
  title: 'Connection',
  /** @param {string[]} path */
  async open([wantedId = '']) {
    shown = 'failed';
    await loader.open(wantedId);
    const { failed = 0, pending = 0, processing = 0 } = loader.found?.counts.byState ?? {};
    if (failed === 0 && processing > 0) shown = 'processing';
    else if (failed === 0 && pending > 0) shown = 'pending';
    await Promise.all([filter(), syncs.filter({ connectionId: loader.id })]);
  },
  refresh,
  render() {
    const { found: connection, error } = loader;
    if (!connection) return notYet(error);
    const { id, condition } = connection;
    const about = aboutCondition(connection);
    const { byState } = connection.counts;
    const isEnded = connection.status === 'disconnected';
    const retry =
      isEnded || !may('retryAsset')
        ? undefined
        : (/** @type {AssetSummary} */ asset) => act(() => retryAsset(asset), refresh);
    return html`
      <nav aria-label="You are here" class="crumbs"><a href="#/">Overview</a></nav>
      ${outages(state.status)}
      ${trouble(error)}
      <section class="card" aria-labelledby="connection-title">
        <div class="head"><div><h1 id="connection-title" tabindex="-1">${nameOf(connection)}</h1>
          <p class="soft">${[connection.user.email, companiesOf(connection)].filter(Boolean).join(' · ')}</p>${tagPills(connection)}</div>
          <p class="state">${pill(condition.tone, condition.text)}${about ? html`<small>${about}</small>` : nothing}</p></div>
        ${connection.companies.flatMap((company) => company.held.map((changes) => heldBanner(id, company, changes)))}
        ${connection.lastError ? html`<p class="banner ${condition.tone === 'bad' ? 'bad' : 'warn'}"><strong>Reason:</strong> ${connection.lastError}</p>` : nothing}
        ${bar(byState)}
        <ul class="legend">${legend(byState, id)}</ul>
        ${buttons(connection)}
        <dl class="facts">
          <div><dt>Mirrored</dt><dd>${number(byState.mirrored)} of ${number(connection.counts.expected)}${withFile(byState)}</dd></div>
          <div><dt>Stored</dt><dd>${bytes(connection.bytes)}</dd></div>
          <div><dt>Last sync</dt><dd>${time(connection.lastSyncAt, 'not yet')}</dd></div>
          ${connection.status === 'active' ? activeFacts(connection) : nothing}
          ${bandwidthFact(connection)}
          <div><dt>Connected</dt><dd>${time(connection.connectedAt)}</dd></div>
          ${connection.counts.skipped > 0 ? html`<div><dt>Skipped</dt><dd><a href="#/assets?skipped=true&connectionId=${id}">${counted(connection.counts.skipped, 'asset')}</a></dd></div>` : nothing}
          <div class="wide"><dt>Id</dt><dd><code>${connection.id}</code></dd></div>
        </dl>
      </section>
      <section class="card" aria-labelledby="attention-title">
        <div class="head"><h2 id="attention-title">Not mirrored</h2>
          <div class="tools"><div class="segments" role="group" aria-label="State">${
            /** @type {const} */ (['failed', 'pending', 'processing', 'unavailable']).map(
              (name) =>
                html`<button aria-pressed=${shown === name} @click=${() => {
                  shown = name;
                  filter();
                  draw();
                }}>${stateNames[name]} <b>${number(byState[name])}</b></button>`,
            )
          }</div>
          ${shown === 'failed' && byState.failed > 0 && !isEnded && may('retryFailedOfConnection') ? html`<button @click=${() => act(() => retryFailed(id), refresh)}>Retry all failed</button>` : nothing}</div></div>
        ${listed(assets, 3, (rows) => assetTable(rows, retry), noneOf[shown] ?? '', 'assets')}
      </section>
      <section class="card" aria-labelledby="syncs-title"><h2 id="syncs-title">Syncs</h2>
        ${listed(syncs, 3, syncTable, 'No syncs yet.', 'syncs')}
      </section>`;
  },
};

/** The words about held changes, by kind. `flag`: the field of a sync request that accepts them. */
const heldKinds = {
  missing: { flag: 'acceptGone', until: 'Nothing is marked as gone', accept: 'Accept as gone' },
  replaced: { flag: 'acceptReplaced', until: 'No file is replaced', accept: 'Accept the new files' },
  removed: { flag: 'acceptRemoved', until: 'Nothing is removed from the bucket', accept: 'Accept the removal' },
};

/** @param {string} connectionId @param {Connection['companies'][number]} company @param {Connection['companies'][number]['held'][number]} changes */
function heldBanner(connectionId, { id: companyId, name }, changes) {
  const { flag, until, accept } = heldKinds[changes.kind];
  const request = { mode: 'full', companyId, [flag]: true };
  return html`<div class="banner bad"><p><strong>${name} is held:</strong> ${heldWords(changes)}, found ${time(changes.since)}.
    ${until} until you accept this.
    Examples: ${changes.sample.slice(0, 3).map((id, index) => html`${index > 0 ? ', ' : ''}<a href="#/assets/${encodeURIComponent(id)}">${id}</a>`)}.</p>
    ${ifMay('acceptHeldChanges', () => html`<p class="row"><button @click=${() => act(() => resync(connectionId, request), refresh)}>${accept}</button></p>`)}
    ${rolesNeeded({ [accept]: 'acceptHeldChanges' })}</div>`;
}

/** @param {Connection} connection */
const activeFacts = ({ nextSyncAt, polling, adaptiveLimit: { limit, ceiling } }) => html`
  <div><dt>Next sync</dt><dd>${time(nextSyncAt, 'none')} <small>every ${duration(polling.interval / 1000)}${polling.reason === 'active' ? ' after recent uploads' : ''}</small></dd></div>
  <div><dt>Assets at once</dt><dd>${counted(limit, 'asset')}${limit < ceiling ? html` <small>adapted to the library, at most ${ceiling}</small>` : nothing}</dd></div>`;

/** @param {Connection} connection */
const bandwidthFact = ({ settings: { own, bandwidth, bandwidthTimetable } }) =>
  own.includes('bandwidth')
    ? html`<div><dt>Bandwidth</dt><dd>${bandwidth === null ? 'unlimited' : `${bytes(bandwidth)}/s`} <small>per process${bandwidthTimetable ? `, by the timetable ${bandwidthTimetable}` : nothing}</small></dd></div>`
    : nothing;

/** @param {Connection} of */
function buttons(of) {
  const active = of.status === 'active';
  const failed = (/** @type {Error} */ problem) => say(problem.message, 'bad');
  return html`<div class="actions">
    ${
      active
        ? html`${ifMay(
            'resyncConnection',
            () => html`<button class="main" @click=${() => act(() => resync(of.id, { mode: 'incremental' }), refresh)}>Sync now</button>
          <button @click=${() => resyncDialog(of, seenTypes(), refresh)}>Full or partial sync …</button>`,
          )}
          ${ifMay('plan', () => html`<button @click=${() => planDialog(of)}>Plan</button>`)}
          ${ifMay('verify', () => html`<button @click=${() => verifyDialog(of)}>Verify …</button>`)}
          ${ifMay('pauseConnection', () => html`<button @click=${() => act(() => pauseOrResume(of, 'pause'), refresh)}>Pause</button>`)}`
        : nothing
    }
    ${of.status === 'paused' && may('resumeConnection') ? html`<button class="main" @click=${() => act(() => pauseOrResume(of, 'resume'), refresh)}>Resume</button>` : nothing}
    ${ifMay('changeConnection', () => html`<button @click=${() => settingsDialog(of, seenTypes(), refresh)}>Settings …</button>`)}
    ${ifMay('createConnectLink', () => html`<button class=${of.status === 'disconnected' ? 'main' : ''} @click=${() => linkDialog(of).catch(failed)}>Reconnect link</button>`)}
    ${of.status === 'disconnected' || !may('disconnectConnection') ? nothing : html`<button class="danger-quiet" @click=${() => disconnectDialog(of, refresh)}>Disconnect …</button>`}
  </div>
  ${rolesNeeded({ Sync: 'resyncConnection', Verify: 'verify', Pause: 'pauseConnection', Settings: 'changeConnection', 'Connect link': 'createConnectLink', Disconnect: 'disconnectConnection' })}`;
}

/** The types of the assets that are shown. */
const seenTypes = () => (assets.rows ?? []).map(({ type }) => type).filter((type) => type !== null);

/** @type {Record<string, [string, string]>} */
const syncStates = {
  waiting: ['plain', 'Waiting'],
  running: ['go', 'Running'],
  done: ['good', 'Done'],
  failed: ['bad', 'Failed'],
};

/** @param {Sync[]} rows */
const syncTable = (rows) => html`<table role="table" class="cards small-figures">
  ${head('Requested', 'What', 'State', { right: 'Seen' }, { right: 'New' }, { right: 'Changed' }, { right: 'Gone' }, 'Duration')}
  <tbody role="rowgroup">${repeat(
    rows,
    (sync) => sync.id,
    (sync) => {
      const [tone, word] = syncStates[sync.status] ?? ['plain', sync.status];
      return html`<tr role="row">
        <th role="rowheader" scope="row">${time(sync.requestedAt)}${sync.error ? html`<small>${sync.error}</small>` : nothing}</th>
        <td role="cell" data-label="What" class="whole">${scopeOf(sync)}</td>
        <td role="cell" data-label="State" class="whole">${pill(tone, word)}</td>
        <td role="cell" data-label="Seen" class="right figures">${number(sync.seen)}</td>
        <td role="cell" data-label="New" class="right figures">${number(sync.new)}</td>
        <td role="cell" data-label="Changed" class="right figures">${number(sync.changed)}</td>
        <td role="cell" data-label="Gone" class="right figures">${number(sync.gone)}</td>
        <td role="cell" data-label="Duration">${
          sync.startedAt && sync.finishedAt
            ? duration((new Date(sync.finishedAt).getTime() - new Date(sync.startedAt).getTime()) / 1000)
            : ''
        }</td>
      </tr>`;
    },
  )}</tbody></table>`;

/** @param {Sync} sync */
function scopeOf({ mode, scope }) {
  const part = [
    scope.projectId ? `Project ${scope.projectId}` : scope.companyId && `Company ${scope.companyId}`,
    scope.assetType && typeName(scope.assetType),
    scope.since !== undefined && `Since ${day(scope.since)}`,
    scope.assetIds && counted(scope.assetIds.length, 'asset'),
  ].filter(Boolean);
  if (part.length > 0) return part.join(' · ');
  return mode === 'full' ? 'Full' : 'Incremental';
}
