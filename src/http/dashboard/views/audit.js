/** @import { AuditEntry } from '../types.d.ts' */
import { api, queryOf } from '../api.js';
import { later, listOf } from '../lists.js';
import { head, listed, pill, time } from '../parts.js';
import { ifMay, may, rolesNeeded } from '../permissions.js';
import { chosen, searched, select, typed } from '../search-field.js';
import { say } from '../state.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { actionWords } from '../words.js';

/** @type {ReturnType<typeof listOf<AuditEntry>>} */
const entries = listOf('/audit', 'entries');
const filterNames = ['q', 'outcome', 'since', 'until'];
const outcomes = Object.entries({ '': 'All', done: 'Done', refused: 'Refused' });
/** @type {Record<string, string | undefined>} */
let query = {};

/** The filter is in the address. @param {Record<string, string | undefined>} change */
const change = (change) => location.replace(`#/audit${queryOf({ ...query, ...change })}`);
const searchSoon = later(() => change({ q: typed('audit-search') }), 250);

export const auditView = {
  title: 'Audit',
  /** @param {string[]} _path @param {URLSearchParams} given */
  async open(_path, given) {
    query = Object.fromEntries(filterNames.map((name) => [name, given.get(name) ?? undefined]));
    if (may('listAudit')) await entries.filter(query);
  },
  refresh: async () => {
    if (may('listAudit')) await entries.refresh();
  },
  render: () => html`
    <section class="card" aria-labelledby="audit-title">
      <div class="head"><h1 id="audit-title" tabindex="-1">Audit</h1>
        ${ifMay('listAudit', tools)}</div>
      ${rolesNeeded({ 'The audit log': 'listAudit' })}
      ${ifMay('listAudit', () => listed(entries, 8, table, 'No matching entry.', 'entries'))}
    </section>`,
};

const tools = () => html`<div class="tools">
  <label><span class="hidden">Search</span><input id="audit-search" type="search" placeholder="Name, address or id" .value=${searched('audit-search', query.q)} @input=${searchSoon}></label>
  ${dateField('From', 'since')}${dateField('Before', 'until')}
  <label><span class="hidden">Outcome</span>${select(outcomes, query.outcome, (outcome) => change({ outcome }))}</label>
  <button @click=${exportAll}>Export</button>
</div>`;

/** @param {string} label @param {'since' | 'until'} name */
const dateField = (label, name) => html`<label class="inline">${label} <input type="date" .value=${query[name] ?? ''}
  @change=${chosen((value) => change({ [name]: value }))}></label>`;

/** @param {AuditEntry[]} rows */
const table = (rows) => html`<table role="table" class="cards">
  ${head('When', 'Who', 'What', 'Details', 'Outcome')}<tbody role="rowgroup">${repeat(
    rows,
    ({ id }) => id,
    (entry) => html`<tr role="row">
      <th role="rowheader" scope="row">${time(entry.at)}</th>
      <td role="cell" data-label="Who" class="whole"><div>${entry.by?.name ?? 'Unknown'}<small class="soft">${[entry.by?.role, entry.address].filter(Boolean).join(' · ')}</small></div></td>
      <td role="cell" data-label="What" class="why"><div>${actionWords(entry.action)} ${targetOf(entry)}</div></td>
      <td role="cell" data-label="Details" class="why ${detailsOf(entry) === '' ? 'blank' : ''}"><div>${detailsOf(entry)}</div></td>
      <td role="cell" data-label="Outcome" class="whole"><div>${entry.outcome === 'done' ? pill('good', 'Done') : pill('bad', 'Refused')}</div></td></tr>`,
  )}</tbody></table>`;

/** @param {AuditEntry} entry */
function targetOf({ connectionId, assetId, targetId }) {
  if (assetId) return html`<a href="#/assets/${encodeURIComponent(assetId)}">${assetId}</a>`;
  if (connectionId) return html`<a href="#/connections/${encodeURIComponent(connectionId)}">${connectionId}</a>`;
  return targetId ?? nothing;
}

/** @param {AuditEntry} entry */
function detailsOf({ reason, before, after, request }) {
  const [old, now] = /** @type {(Record<string, unknown> | undefined)[]} */ ([before, after]);
  if (reason) return reason;
  if (old && now) {
    return Object.keys({ ...old, ...now }).map(
      (name) => html`<div class="change">${name}: <del>${shown(old[name])}</del> <ins>${shown(now[name])}</ins></div>`,
    );
  }
  return Object.keys(request ?? {}).length === 0 ? '' : html`<code>${shown(request)}</code>`;
}

/** @param {unknown} value */
const shown = (value) => (typeof value === 'string' ? value : (JSON.stringify(value) ?? 'none'));

/** Saves all entries of the filter as lines of JSON. */
async function exportAll() {
  try {
    const lines = [];
    /** @type {string | null} */
    let cursor = null;
    do {
      /** @type {{ entries: AuditEntry[], nextCursor: string | null }} */
      const answer = await api(`/audit${queryOf({ ...query, cursor, limit: 250 })}`);
      lines.push(...answer.entries.map((entry) => `${JSON.stringify(entry)}\n`));
      cursor = answer.nextCursor;
    } while (cursor !== null);
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob(lines, { type: 'application/jsonl' }));
    link.download = 'audit.jsonl';
    link.click();
    // The address must work until the browser has begun to save the file.
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  } catch (error) {
    say(/** @type {Error} */ (error).message, 'bad');
  }
}
