/** @import { FacetList } from './types.d.ts' */
import { api, queryOf } from './api.js';
import { counted, number } from './format.js';
import { may } from './permissions.js';
import { chosen, searched, select } from './search-field.js';
import { draw, state } from './state.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { stateNames, states, typeName, typeNames } from './words.js';

/** The filters of the list of assets. Names and values are those of the API, and are in the address. */

/** @typedef {Record<string, string | undefined>} Query */
/** @typedef {keyof FacetList['facets']} Facet */
export const filterNames = [
  ...[
    'q',
    'said',
    'state',
    'type',
    'projectId',
    'tag',
    'mimeType',
    'companyId',
    'connectionId',
    'connectionTag',
    'skipped',
  ],
  ...['uploadedFrom', 'uploadedBefore', 'minSize', 'maxSize', 'sort'],
];
/** The filters below "More filters". */
const rare = [
  'mimeType',
  'companyId',
  'connectionId',
  'connectionTag',
  'uploadedFrom',
  'uploadedBefore',
  'minSize',
  'maxSize',
];

/** @type {Record<string, string>} */
const orders = {
  '': 'By id',
  name: 'Name',
  '-uploadDate': 'Newest first',
  uploadDate: 'Oldest first',
  '-size': 'Largest first',
  size: 'Smallest first',
};
/** Sizes that are offered, in bytes. @type {Record<string, string>} */
const sizes = {
  '': 'Any',
  [2 ** 20]: '1 MiB',
  [10 * 2 ** 20]: '10 MiB',
  [100 * 2 ** 20]: '100 MiB',
  [2 ** 30]: '1 GiB',
  [10 * 2 ** 30]: '10 GiB',
};

/** The counts of the last answer; undefined: there are none. @type {FacetList | undefined} */
let facetCounts;
let latest = 0;

/** Counts what matches. A facet with a condition is counted without that condition, to show the other values. @param {Query} query */
export async function countFacets({ sort: _, ...query }) {
  const request = ++latest;
  /** @param {Query} of @returns {Promise<FacetList>} */
  const count = (of) => api(`/asset-facets${queryOf(of)}`);
  try {
    const all = await count(query);
    const filtered = /** @type {Facet[]} */ (Object.keys(all.facets)).filter((facet) => ownCondition(facet, query));
    const others = await Promise.all(filtered.map((facet) => count({ ...query, ...ownCondition(facet, query) })));
    if (request !== latest) return;
    const facets = { ...all.facets };
    for (const [index, facet] of filtered.entries())
      facets[facet] = /** @type {FacetList} */ (others[index]).facets[facet];
    facetCounts = { ...all, facets };
  } catch {
    // The list shows why. The filters work without counts.
    if (request === latest) facetCounts = undefined;
  }
  draw();
}

/** The change that removes the condition on a facet; undefined: there is no condition. @param {Facet} facet @param {Query} query */
function ownCondition(facet, query) {
  if (facet === 'state') return query.state || query.skipped ? { state: undefined, skipped: undefined } : undefined;
  return query[facet] ? { [facet]: undefined } : undefined;
}

/** Whether the matching assets fit into one archive. */
export const isFew = () => facetCounts?.isComplete === true && facetCounts.matching > 0 && facetCounts.matching <= 1000;

/** How many match. */
export const matchingWords = () =>
  facetCounts === undefined ? '' : `${facetCounts.isComplete ? '' : 'more than '}${number(facetCounts.matching)}`;

/** @param {Query} query @param {(change: Query) => void} change @param {() => void} searchSoon */
export function assetFilters(query, change, searchSoon) {
  const stateValue = query.skipped ? 'skipped' : query.state;
  const types = Object.keys(typeNames);
  return html`
    <div class="filters">
      <label class="search"><span>Search</span><input id="asset-search" type="search" placeholder="Part of the name, or an id" .value=${searched('asset-search', query.q)} @input=${searchSoon}></label>
      ${
        may('getCaptions') && (state.status?.transcriptSearch || query.said)
          ? html`<label class="search"><span>Spoken words</span><input id="said-search" type="search" placeholder='Words, "a phrase", -not' .value=${searched('said-search', query.said)} @input=${searchSoon}></label>`
          : nothing
      }
      ${choice(
        'State',
        options('state', stateValue, [...states, 'skipped'], (value) => stateNames[value] ?? 'Skipped'),
        stateValue,
        (value) =>
          change(value === 'skipped' ? { state: undefined, skipped: 'true' } : { state: value, skipped: undefined }),
      )}
      ${choice('Type', options('type', query.type, types, typeName), query.type, (type) => change({ type }))}
      ${choice('Project', options('projectId', query.projectId), query.projectId, (projectId) => change({ projectId }))}
      ${choice('Tag', options('tag', query.tag), query.tag, (tag) => change({ tag }))}
      ${choice('Sort', Object.entries(orders), query.sort, (sort) => change({ sort }))}
    </div>
    <details class="more-filters" ?open=${rare.some((name) => query[name])}>
      <summary>More filters</summary>
      <div class="filters">
        ${choice('Company', options('companyId', query.companyId), query.companyId, (companyId) => change({ companyId }))}
        ${choice('Connection', options('connectionId', query.connectionId), query.connectionId, (connectionId) => change({ connectionId }))}
        ${field('Connection tag', 'client=acme', query.connectionTag, (connectionTag) => change({ connectionTag }))}
        ${choice('File format', options('mimeType', query.mimeType), query.mimeType, (mimeType) => change({ mimeType }))}
        ${day('Uploaded from', query.uploadedFrom, (uploadedFrom) => change({ uploadedFrom }))}
        ${day('Uploaded before', query.uploadedBefore, (uploadedBefore) => change({ uploadedBefore }))}
        ${choice('At least', sizeOptions(query.minSize), query.minSize, (minSize) => change({ minSize }))}
        ${choice('At most', sizeOptions(query.maxSize), query.maxSize, (maxSize) => change({ maxSize }))}
      </div>
    </details>`;
}

/** A search for spoken words misses transcripts that are not read yet. @param {Query} query */
export function unreadNote({ said }) {
  const { waiting = 0 } = state.status?.transcriptSearch ?? {};
  return said && waiting > 0 ? html`<p class="soft">${counted(waiting, 'transcript')} not searched yet.</p>` : nothing;
}

/**
 * The values of a facet with their counts, and others that can be chosen.
 * @param {Facet} facet @param {string | undefined} selected @param {string[]} [always] @param {(value: string) => string} [toText]
 */
function options(facet, selected, always = [], toText = (value) => value) {
  const found = facetCounts?.facets[facet] ?? [];
  const values = [...new Set([...found.map(({ value }) => value), ...always, ...(selected ? [selected] : [])])];
  return [
    ['', 'All'],
    ...values.map((value) => {
      const one = found.find((it) => it.value === value);
      return [value, `${one?.name ?? toText(value)}${one ? ` (${number(one.count)})` : ''}`];
    }),
  ];
}

/** @param {string | undefined} selected */
const sizeOptions = (selected) =>
  Object.entries({
    ...sizes,
    ...(selected && !(selected in sizes) && { [selected]: `${number(Number(selected))} bytes` }),
  });

/** @param {string} label @param {string[][]} choices @param {string | undefined} value @param {(value: string | undefined) => void} then */
const choice = (label, choices, value, then) =>
  html`<label><span>${label}</span>${select(choices, value, then)}</label>`;

/** @param {string} label @param {string} example @param {string | undefined} value @param {(value: string | undefined) => void} then */
const field = (label, example, value, then) =>
  html`<label><span>${label}</span><input placeholder=${example} .value=${value ?? ''} @change=${chosen(then)}></label>`;

/** @param {string} label @param {string | undefined} value @param {(value: string | undefined) => void} then */
const day = (label, value, then) =>
  html`<label><span>${label}</span><input type="date" .value=${value?.slice(0, 10) ?? ''} @change=${chosen(then)}></label>`;
