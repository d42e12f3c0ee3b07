/** @import { AssetSummary } from '../types.d.ts' */
import { act, retryAsset } from '../actions.js';
import { addressOf, queryOf } from '../api.js';
import { assetFilters, countFacets, filterNames, isFew, matchingWords, unreadNote } from '../asset-filters.js';
import { collected, later, listOf } from '../lists.js';
import { assetGrid, assetTable, listed } from '../parts.js';
import { ifMay, may } from '../permissions.js';
import { typed } from '../search-field.js';
import { checkBoxOf, isAnySelected, selectAll, selectionBar } from '../selection.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @type {ReturnType<typeof listOf<AssetSummary>>} */
const assets = listOf('/assets', 'assets');
/** @type {Record<string, string | undefined>} */
let query = {};
let isGrid = false;

/** The filter is in the address, so that it can be bookmarked and shared. @param {Record<string, string | undefined>} change */
const change = (change) =>
  location.replace(`#/assets${queryOf({ ...query, view: isGrid ? 'grid' : undefined, ...change })}`);
const searchSoon = later(() => change({ q: typed('asset-search'), said: typed('said-search') }), 250);
const countSoon = collected(() => countFacets(query), 3000);
const isFiltered = () => Object.entries(query).some(([name, value]) => value && name !== 'sort');

export const assetsView = {
  title: 'Assets',
  /** @param {string[]} _path @param {URLSearchParams} given */
  async open(_path, given) {
    isGrid = given.get('view') === 'grid';
    query = Object.fromEntries(filterNames.map((name) => [name, given.get(name) ?? undefined]));
    await Promise.all([assets.filter(query), countFacets(query)]);
  },
  refresh() {
    countSoon();
    return assets.refresh();
  },
  render: () => html`
    <section class="card" aria-labelledby="assets-title">
      <div class="head"><h1 id="assets-title" tabindex="-1">Assets <small class="soft">${matchingWords()}</small></h1>
        <div class="tools">
          ${isFiltered() ? html`<button class="small" @click=${() => change(Object.fromEntries(filterNames.map((name) => [name, undefined])))}>Clear filters</button>` : nothing}
          ${isFew() && !isAnySelected() && may('getAssetZip') ? html`<a class="button" download href=${addressOf(`/asset-zip${queryOf({ ...query, sort: undefined })}`)}>Download .zip</a>` : nothing}
          <div class="segments" role="group" aria-label="View">${[false, true].map(
            (grid) =>
              html`<button aria-pressed=${grid === isGrid} @click=${() => change({ view: grid ? 'grid' : undefined })}>${grid ? 'Grid' : 'List'}</button>`,
          )}</div>
        </div></div>
      ${assetFilters(query, change, searchSoon)}
      ${unreadNote(query)}
      ${listed(assets, 6, rowsOf, isFiltered() ? 'No asset matches.' : 'No assets yet.', 'assets')}
    </section>
    ${selectionBar()}`,
};

/** @param {AssetSummary[]} rows */
const rowsOf = (rows) => {
  const retry = may('retryAsset')
    ? (/** @type {AssetSummary} */ asset) => act(() => retryAsset(asset), assets.refresh)
    : undefined;
  const shown = isGrid ? assetGrid(rows, checkBoxes(rows)) : assetTable(rows, retry, checkBoxes(rows));
  return html`${ifMay('getAssetZipOf', () => selectAll(rows))}${shown}`;
};

/** Files are selected to be downloaded. @param {AssetSummary[]} rows */
const checkBoxes = (rows) => (may('getAssetZipOf') ? checkBoxOf(rows) : undefined);
