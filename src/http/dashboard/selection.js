/** @import { AssetSummary } from './types.d.ts' */
import { addressOf } from './api.js';
import { bytes, counted, number } from './format.js';
import { draw, say } from './state.js';
import { live } from './vendor/lit-html/directives/live.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';

/** Maximum of assets in one archive. */
const most = 1000;

/** The selected assets, with their sizes. They stay selected when others are shown. @type {Map<string, number>} */
const selected = new Map();
/** The id of the asset at which a range begins. @type {string | undefined} */
let anchor;

export const isAnySelected = () => selected.size > 0;

/** @param {AssetSummary[]} assets @param {boolean} isChosen */
function select(assets, isChosen) {
  for (const asset of assets) {
    if (!isChosen) selected.delete(asset.id);
    else if (selected.size < most || selected.has(asset.id)) selected.set(asset.id, asset.bytes ?? asset.size ?? 0);
  }
  if (isChosen && assets.some(({ id }) => !selected.has(id)))
    say(`At most ${number(most)} assets can be selected.`, 'bad');
  draw();
}

/** With Shift, all assets from the previous click to this one change. @param {MouseEvent} event @param {AssetSummary} asset @param {AssetSummary[]} shown */
function click({ shiftKey, currentTarget }, asset, shown) {
  const at = shown.indexOf(asset);
  const from = shiftKey ? shown.findIndex(({ id }) => id === anchor) : -1;
  const range = from === -1 ? [asset] : shown.slice(Math.min(from, at), Math.max(from, at) + 1);
  anchor = asset.id;
  select(range, /** @type {HTMLInputElement} */ (currentTarget).checked);
}

/** The check box of an asset in a list. @param {AssetSummary[]} shown */
export const checkBoxOf = (shown) => (/** @type {AssetSummary} */ asset) =>
  html`<label class="pick"><input type="checkbox" aria-label="Select ${asset.name ?? asset.id}" .checked=${live(selected.has(asset.id))}
    @click=${(/** @type {MouseEvent} */ event) => click(event, asset, shown)}></label>`;

/** @param {AssetSummary[]} shown */
export function selectAll(shown) {
  const count = shown.filter(({ id }) => selected.has(id)).length;
  const isAll = count === shown.length;
  return html`<label class="pick-all"><input type="checkbox" .checked=${live(isAll)} .indeterminate=${live(count > 0 && !isAll)}
    @click=${(/** @type {Event} */ event) => select(shown, /** @type {HTMLInputElement} */ (event.currentTarget).checked)}>Select all ${number(shown.length)} shown</label>`;
}

function clear() {
  selected.clear();
  anchor = undefined;
  draw();
}

/** Shows the selection, also to screen readers, and its actions. A form sends the ids: they may not fit into an address. */
export function selectionBar() {
  const total = [...selected.values()].reduce((sum, size) => sum + size, 0);
  const words = `${counted(selected.size, 'asset')} selected, ${bytes(total)}`;
  return html`<form class="selection" method="post" action=${addressOf('/asset-zip')} target="archive" aria-label="Selection">
    <p role="status">${selected.size > 0 ? words : ''}</p>
    ${
      selected.size > 0
        ? html`${[...selected.keys()].map((id) => html`<input type="hidden" name="id" value=${id}>`)}
          <button type="button" class="quiet" @click=${clear}>Clear</button><button class="main">Download .zip</button>`
        : nothing
    }</form>
    <iframe name="archive" title="Download" hidden @load=${refused}></iframe>`;
}

/** The frame stays empty for an archive. For a refusal, it contains the JSON of the problem. @param {Event} event */
function refused({ currentTarget }) {
  const { contentDocument } = /** @type {HTMLIFrameElement} */ (currentTarget);
  if (!contentDocument?.contentType.endsWith('json')) return;
  say(JSON.parse(contentDocument.body.innerText).detail, 'bad');
}
