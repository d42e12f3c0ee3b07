/** @import { Asset, Removals } from './types.d.ts' */
import { act } from './actions.js';
import { api } from './api.js';
import { openDialog, textOf } from './dialog.js';
import { bytes, counted } from './format.js';
import { time } from './parts.js';
import { ifMay } from './permissions.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { heldWords } from './words.js';

const most = 6;

/** Lists the assets to be removed in the next week; nothing without GONE_RETENTION. @param {Removals | undefined} removals */
export function removalsCard(removals) {
  if (!removals || (removals.nextWeek.assets === 0 && removals.heldCompanies.length === 0)) return nothing;
  const { assets, bytes: size, first } = removals.nextWeek;
  return html`<section class="card" aria-labelledby="removals-title"><h2 id="removals-title">Removed in the next 7 days</h2>
    ${removals.heldCompanies.map(
      (held) =>
        html`<p class="banner warn"><strong><a href="#/connections/${held.connectionId}">${held.companyName} is held</a>:</strong> ${heldWords(held)}. No asset is removed until you accept this.</p>`,
    )}
    ${assets === 0 ? nothing : html`<p class="soft">${counted(assets, 'asset')}, ${bytes(size)}: deleted in the library, and not protected from removal.</p>`}
    <ul class="events">${first
      .slice(0, most)
      .map(
        ({ id, name, at }) =>
          html`<li><span><a href="#/assets/${encodeURIComponent(id)}">${name ?? id}</a></span>${time(at)}</li>`,
      )}</ul></section>`;
}

/** @param {Asset} asset @param {() => unknown} then */
export const protectButton = ({ id, held }, then) =>
  ifMay(
    held ? 'release' : 'hold',
    () =>
      html`<button @click=${() =>
        act(async () => {
          const body = { kind: 'asset', ids: [id] };
          const { changed } = await api(held ? '/holds/release' : '/holds', { method: 'POST', body });
          if (held && changed === 0) throw new Error('This asset is protected by its project or connection.');
          return held ? 'No longer protected from removal.' : 'Protected from removal.';
        }, then)}>${held ? 'End protection' : 'Protect from removal'}</button>`,
  );

/** @param {Asset} asset @param {() => unknown} then */
export function eraseDialog({ id, name }, then) {
  openDialog({
    title: `Erase ${name ?? id}?`,
    label: 'Erase for good',
    danger: true,
    then,
    content: () => html`
      <p>Removes its file, transcript, thumbnail, record, superseded files and history from the bucket and the database.
        It is never mirrored again. This cannot be undone.</p>
      <label class="field">Reason<input name="reason" required maxlength="1000"></label>`,
    async send(form) {
      const body = { assetIds: [id], reason: textOf(form, 'reason') };
      const erasure = await api('/erasures', { method: 'POST', body });
      return `Erasure started. Print the certificate: asset-mirror erasures ${erasure.id}`;
    },
  });
}
