/** @import { AssetSummary } from '../types.d.ts' */
import { act, retryAsset } from '../actions.js';
import { queryOf } from '../api.js';
import { later, listOf } from '../lists.js';
import { connectionName } from '../names.js';
import { assetGrid, assetTable, empty, moreButton, skeleton, trouble } from '../parts.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { stateNames, states, typeNames } from '../words.js';

/** @type {ReturnType<typeof listOf<AssetSummary>>} */
const assets = listOf('/assets', 'assets');
const names = ['state', 'q', 'type', 'projectId', 'connectionId', 'skipped'];
/** @type {Record<string, string | undefined>} */
let query = {};
let isGrid = false;

/** The filter is in the address, so that it can be bookmarked and shared. @param {Record<string, string | undefined>} change */
const change = (change) =>
  location.replace(`#/assets${queryOf({ ...query, view: isGrid ? 'grid' : undefined, ...change })}`);
const searchSoon = later(() => {
  const field = /** @type {HTMLInputElement | null} */ (document.getElementById('asset-search'));
  change({ q: field?.value.trim() || undefined });
}, 250);

export const assetsView = {
  title: 'Assets',
  /** @param {string[]} _path @param {URLSearchParams} given */
  async open(_path, given) {
    isGrid = given.get('view') === 'grid';
    query = Object.fromEntries(names.map((name) => [name, given.get(name) ?? undefined]));
    await assets.filter(query);
  },
  refresh: () => assets.refresh(),
  render: () => html`
    <section class="card" aria-labelledby="assets-title">
      <div class="head"><h1 id="assets-title" tabindex="-1">Assets</h1>
        <div class="tools">
          <label><span class="hidden">Search assets</span><input id="asset-search" type="search" placeholder="Part of the name, or an id" .value=${query.q ?? ''} @input=${searchSoon}></label>
          <label><span class="hidden">Type</span><select @change=${(/** @type {Event} */ event) =>
            change({
              type: /** @type {HTMLSelectElement} */ (event.target).value || undefined,
            })}>${Object.entries({ '': 'All types', ...typeNames }).map(
            ([value, name]) => html`<option value=${value} ?selected=${value === (query.type ?? '')}>${name}</option>`,
          )}</select></label>
          <label><span class="hidden">State</span><select @change=${(/** @type {Event} */ event) => {
            const { value } = /** @type {HTMLSelectElement} */ (event.target);
            change({
              state: value === 'skipped' ? undefined : value,
              skipped: value === 'skipped' ? 'true' : undefined,
            });
          }}>${[['', 'All states'], ...states.map((name) => [name, stateNames[name]]), ['skipped', 'Skipped']].map(
            ([value, name]) =>
              html`<option value=${value} ?selected=${value === (query.skipped ? 'skipped' : (query.state ?? ''))}>${name}</option>`,
          )}</select></label>
          <div class="segments" role="group" aria-label="View">${[false, true].map(
            (grid) =>
              html`<button aria-pressed=${grid === isGrid} @click=${() => change({ view: grid ? 'grid' : undefined })}>${grid ? 'Grid' : 'List'}</button>`,
          )}</div>
        </div></div>
      ${
        query.connectionId
          ? html`<p class="soft">Of <a href="#/connections/${query.connectionId}">${connectionName(query.connectionId)}</a>. <button class="small" @click=${() => change({ connectionId: undefined })}>Show all</button></p>`
          : nothing
      }
      ${trouble(assets.error)}
      ${
        assets.rows === undefined
          ? skeleton(6)
          : assets.rows.length > 0
            ? html`${isGrid ? assetGrid(assets.rows) : assetTable(assets.rows, (asset) => act(() => retryAsset(asset), assets.refresh))}${moreButton(assets.isMore, () => assets.more(), 'assets')}`
            : empty(Object.values(query).some(Boolean) ? 'No asset matches.' : 'No assets yet.')
      }
    </section>`,
};
