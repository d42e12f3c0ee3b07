/** @import { Connection, History, Removals, Settings, Status, Upcoming } from '../types.d.ts' */
import { api, queryOf } from '../api.js';
import '../chart.js';
import { linkDialog } from '../dialogs.js';
import { bytes, counted, duration, number } from '../format.js';
import { later, listOf } from '../lists.js';
import { connectionTable, empty, eventList, listed, outages, percent, share, skeleton, time } from '../parts.js';
import { ifMay, may } from '../permissions.js';
import { removalsCard } from '../removals.js';
import { chosen, searched, select, typed } from '../search-field.js';
import { draw, say, state } from '../state.js';
import { bar, legend } from '../state-bar.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { verifyDialog } from '../verify-dialog.js';
import { kindNames, withFile } from '../words.js';

/** @type {ReturnType<typeof listOf<Connection>>} */
const connections = listOf('/connections', 'connections');
/** @type {History | undefined} */
let history;
/** @type {Upcoming | undefined} */
let upcoming;
/** @type {Removals | undefined} */
let removals;
/** @type {Settings | undefined} */
let settings;
/** @type {'hour' | 'day' | 'week'} */
let range = 'hour';
/** The filter of connections. Names and values are those of the API, and are in the address. @type {{ q?: string | undefined, status?: string | undefined, tag?: string | undefined }} */
let query = {};
/** @type {{ assets: import('../chart.js').ChartData, bytes: import('../chart.js').ChartData } | undefined} */
let charts;

/** @param {typeof query} change */
const change = (change) => location.replace(`#/${queryOf({ ...query, ...change })}`);
const searchSoon = later(() => change({ q: typed('connection-search') }), 250);
const isFiltered = () => Object.values(query).some(Boolean);

/** Scrolls to the connections when a link with a filter opens the page, but not while the user changes the filters. */
function showConnections() {
  if (document.activeElement?.closest('.tools')) return;
  document.getElementById('connections-title')?.scrollIntoView();
}
const historySoon = later(() => loadHistory(), 1000);

async function loadHistory() {
  const wanted = range;
  /** @type {typeof history} */
  const found = await api(`/history?range=${wanted}`).catch(() => undefined);
  // Another range may have been chosen meanwhile.
  if (!found || wanted !== range) return;
  history = found;
  const { points, step, complete } = found;
  const times = points.map(({ at }) => new Date(at).getTime() / 1000);
  const withDay = range === 'week';
  charts = {
    assets: {
      times,
      withDay,
      base: 10,
      format: (value) => (value % 1 === 0 ? number(value) : ''),
      series: [
        { label: 'Mirrored', colour: 'go', values: points.map(({ assets }) => assets), bars: true },
        { label: 'Failed', colour: 'bad', values: points.map(({ failed }) => failed), bars: true },
      ],
    },
    bytes: {
      times,
      withDay,
      base: 2,
      format: (value) => `${bytes(value).replace('.0', '')}/s`,
      series: [{ label: 'Stored', colour: 'good', values: points.map((point) => point.bytes / step) }],
    },
  };
  draw();
  if (!complete) historySoon();
}

async function loadUpcoming() {
  try {
    [upcoming, removals, settings] = await Promise.all([api('/upcoming?limit=6'), api('/removals'), api('/settings')]);
    draw();
  } catch {
    // The next refresh tries again.
  }
}

export const overview = {
  title: 'Overview',
  /** @param {string[]} _path @param {URLSearchParams} given */
  async open(_path, given) {
    query = Object.fromEntries(['q', 'status', 'tag'].map((name) => [name, given.get(name) ?? undefined]));
    await Promise.all([connections.filter(query), loadHistory(), loadUpcoming()]);
    if (isFiltered()) requestAnimationFrame(showConnections);
  },
  refresh() {
    return Promise.all([connections.refresh(), loadHistory(), loadUpcoming()]);
  },
  render() {
    const isFirst = connections.rows?.length === 0 && !isFiltered();
    return html`
    <h1 class="hidden">Overview</h1>
    ${warnings(state.status)}
    ${isFirst ? connectionsCard() : nothing}
    ${state.status ? summary(state.status) : html`<section class="card">${skeleton(3)}</section>`}
    ${throughput()}
    ${isFirst ? nothing : connectionsCard()}
    ${removalsCard(removals)}
    <div class="columns">
      <section class="card" aria-labelledby="next-title"><h2 id="next-title">Checks and retries in the next hour</h2>${nextHour()}</section>
      <section class="card" aria-labelledby="recent-title"><h2 id="recent-title">Recent activity</h2>${
        state.events.length > 0
          ? html`${eventList(state.events.slice(0, 7))}<p class="more"><a href="#/activity">All activity</a></p>`
          : empty('No activity yet.')
      }</section>
    </div>`;
  },
};

const statuses = Object.entries({ '': 'All', active: 'Active', paused: 'Paused', disconnected: 'Disconnected' });
const noneYet = 'No connections yet. “Connect” creates a link. Send it to the user whose library you want to mirror.';

const connectionsCard = () => html`
    <section class="card" aria-labelledby="connections-title">
      <div class="head"><h2 id="connections-title">Connections</h2>
        <div class="tools">
          ${isFiltered() ? html`<button class="small" @click=${() => change({ q: undefined, status: undefined, tag: undefined })}>Clear filters</button>` : nothing}
          <label><span class="hidden">Search connections</span><input id="connection-search" type="search" placeholder="Name, e-mail, company" .value=${searched('connection-search', query.q)} @input=${searchSoon}></label>
          <label><span class="hidden">Tag</span><input class="tag-field" placeholder="Tag: client=acme" .value=${live(query.tag ?? '')}
            @change=${chosen((tag) => change({ tag }))}></label>
          <label><span class="hidden">State</span>${select(statuses, query.status, (status) => change({ status }))}</label>
          ${ifMay('createConnectLink', () => html`<button class="main" @click=${() => linkDialog(undefined).catch((error) => say(error.message, 'bad'))}>Connect</button>`)}
        </div></div>
      ${query.tag ? html`<p class="soft small">With the tag ${query.tag}. <a href="#/assets${queryOf({ connectionTag: query.tag })}">Assets of these connections</a></p>` : nothing}
      ${listed(connections, 4, connectionTable, isFiltered() ? 'No connection matches.' : noneYet, 'connections')}
    </section>`;

/** @param {Status | undefined} now */
function warnings(now) {
  if (!now) return nothing;
  const { disconnected, troubled } = now.connections;
  return html`
    ${outages(now)}
    ${troubled > 0 ? html`<p class="banner warn">${counted(troubled, 'connection')} ${troubled === 1 ? 'has' : 'have'} an error, a held company, or a late sync. See the column State below.</p>` : nothing}
    ${
      disconnected > 0
        ? html`<p class="banner warn">${counted(disconnected, 'connection')} ${disconnected === 1 ? 'is' : 'are'} disconnected. The user must connect again.
        <a class="button small" href="#/?status=disconnected">Show</a></p>`
        : nothing
    }`;
}

/** @param {Status} now */
function summary({ assets, bytes: stored, versions, outstanding, rate, timeLeft, syncs, scrub, connections: of }) {
  const { byState } = assets;
  const all = assets.expected;
  const part = share(assets);
  const moving = outstanding.assets > 0;
  return html`<section class="card summary" aria-labelledby="summary-title">
    <div class="hero">
      <div><h2 id="summary-title" class="label">Mirrored</h2>
        <p class="huge" data-test="mirrored">${all === 0 ? '–' : percent(part)}</p>
        <p class="soft">${all === 0 ? 'No assets yet' : html`<b>${number(byState.mirrored)}</b> of ${counted(all, 'asset')}${withFile(byState)}`}</p></div>
      <dl class="figures-row">
        <div><dt>Stored</dt><dd>${bytes(stored)}<small>of ${counted(of.active + of.paused + of.disconnected, 'connection')}</small>${versions.count > 0 ? html`<small>and ${bytes(versions.bytes)} in ${counted(versions.count, 'superseded file')}</small>` : nothing}</dd></div>
        <div><dt>To transfer</dt><dd>${number(outstanding.assets)}<small>${moving ? bytes(outstanding.bytes) : all === 0 ? 'no assets yet' : part === 1 ? 'complete' : `${number(all - byState.mirrored)} not mirrored`}</small></dd></div>
        <div><dt>Rate</dt><dd>${bytes(rate.bytesPerSecond)}/s<small>${rate.assetsPerSecond < 10 ? rate.assetsPerSecond.toFixed(1) : number(Math.round(rate.assetsPerSecond))} assets/s</small></dd></div>
        <div><dt>Time left</dt><dd>${!moving ? '–' : timeLeft === null ? 'unknown' : duration(timeLeft)}<small>${syncs.running > 0 ? counted(syncs.running, 'sync running', 'syncs running') : syncs.waiting > 0 ? counted(syncs.waiting, 'sync waiting', 'syncs waiting') : moving ? 'at this rate' : 'idle'}</small></dd></div>
      </dl>
    </div>
    ${bar(byState)}
    <div class="head"><ul class="legend">${legend(byState)}
      ${assets.skipped > 0 ? html`<li><a href="#/assets?skipped=true"><i class="gone"></i>Skipped <b>${number(assets.skipped)}</b></a></li>` : nothing}</ul>
      ${all === 0 || !may('verify') ? nothing : html`<button @click=${() => verifyDialog(undefined)}>Verify …</button>`}</div>
    ${scrubOf(scrub)}
    ${settings ? limitOf(settings) : nothing}
  </section>`;
}

/** @param {Settings} settings */
function limitOf({ bandwidth, bandwidthTimetable }) {
  if (bandwidth === null && bandwidthTimetable === null) return nothing;
  const now = bandwidth === null ? 'unlimited' : `${bytes(bandwidth)}/s per process`;
  return html`<p class="soft small">Bandwidth now: ${now}${bandwidthTimetable ? ` · ${bandwidthTimetable}` : nothing}</p>`;
}

/** @param {Status['scrub']} scrub */
function scrubOf({ cycle, oldest, onTime, unverifiable }) {
  if (oldest === null) return nothing;
  const aim =
    cycle === null
      ? 'files are not read back: the scrub is off'
      : `each file is read back within ${duration(cycle / 1000)}`;
  const late = onTime === false ? html` · <b>the scrub is late</b>` : nothing;
  return html`<p class="soft small">Oldest verification of a file: ${time(oldest)} · ${aim}${late}${
    unverifiable > 0 ? ` · ${counted(unverifiable, 'file')} cannot be verified` : nothing
  }</p>`;
}

const spans = {
  hour: 'the last hour, by minute',
  day: 'the last 24 hours, by quarter of an hour',
  week: 'the last 7 days, by 2 hours',
};

function throughput() {
  const sum = (/** @type {'assets' | 'bytes' | 'failed'} */ name) =>
    history?.points.reduce((total, point) => total + point[name], 0) ?? 0;
  return html`<section class="card" aria-labelledby="throughput-title">
    <div class="head"><h2 id="throughput-title">Throughput</h2>
      <div class="segments" role="group" aria-label="Time range">${
        /** @type {const} */ (['hour', 'day', 'week']).map(
          (name) =>
            html`<button aria-pressed=${range === name} @click=${() => {
              range = name;
              loadHistory();
              draw();
            }}>${name === 'hour' ? 'Hour' : name === 'day' ? 'Day' : 'Week'}</button>`,
        )
      }</div></div>
    <div class="charts">
      <figure><figcaption>Assets <span class="keys"><i class="mirrored"></i> mirrored <i class="failed"></i> failed</span> <output id="assets-readout"></output></figcaption>
        <time-chart readout="assets-readout" role="img" aria-label="Assets in ${spans[range]}: ${number(sum('assets'))} mirrored, ${number(sum('failed'))} failed" .data=${charts?.assets}></time-chart></figure>
      <figure><figcaption>Bytes <output id="bytes-readout"></output></figcaption>
        <time-chart readout="bytes-readout" role="img" aria-label="Bytes in ${spans[range]}: ${bytes(sum('bytes'))} stored" .data=${charts?.bytes}></time-chart></figure>
    </div>
    <p class="soft small">In ${spans[range]}: ${counted(sum('assets'), 'asset')} mirrored (${bytes(sum('bytes'))}), ${number(sum('failed'))} failed.${history && !history.complete ? ' Still counting …' : ''}</p>
  </section>`;
}

function nextHour() {
  if (!upcoming) return skeleton(3);
  const { counts, assets } = upcoming;
  const kinds = Object.entries(counts).filter(([, n]) => n > 0);
  if (kinds.length === 0) return empty('None: no video is processing, and no transcript, thumbnail or retry is due.');
  return html`<ul class="tags">${kinds.map(([kind, n]) => html`<li>${kindNames[kind]} <b>${n >= 1000 ? '1,000 or more' : number(n)}</b></li>`)}</ul>
    <ul class="events">${assets.map(
      ({ assetId, name, kind, at, reason }) =>
        html`<li><span><a href="#/assets/${encodeURIComponent(assetId)}">${name ?? assetId}</a> <small>${kindNames[kind]}${reason ? ` · ${reason.text}` : ''}</small></span>${time(at)}</li>`,
    )}</ul>`;
}
