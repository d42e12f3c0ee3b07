/** @import { Asset, Removals } from './types.d.ts' */
import { act } from './actions.js';
import { api } from './api.js';
import { openDialog, textOf } from './dialog.js';
import { bytes, counted } from './format.js';
import { time } from './parts.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';

const most = 6;

/** What is removed from the bucket in the next week; nothing without GONE_RETENTION. @param {Removals | undefined} removals @param {() => unknown} then */
export function removalsCard(removals, then) {
  if (!removals || (removals.nextWeek.assets === 0 && removals.heldCompanies.length === 0)) return nothing;
  const { assets, bytes: size, first } = removals.nextWeek;
  return html`<section class="card" aria-labelledby="removals-title"><h2 id="removals-title">Removed in the next 7 days</h2>
    ${removals.heldCompanies.map(
      ({ companyId }) =>
        html`<p class="banner warn"><strong>${companyId}:</strong> too many assets would be removed, so none is.
          Is it on purpose? <button class="small" @click=${() => acceptDialog(companyId, then)}>Accept …</button></p>`,
    )}
    <p class="soft">${counted(assets, 'asset')}, ${bytes(size)}: deleted in the library, and not protected from removal.</p>
    <ul class="events">${first
      .slice(0, most)
      .map(
        ({ id, name, at }) =>
          html`<li><span><a href="#/assets/${encodeURIComponent(id)}">${name ?? id}</a></span>${time(at)}</li>`,
      )}</ul></section>`;
}

/** @param {string} companyId @param {() => unknown} then */
function acceptDialog(companyId, then) {
  openDialog({
    title: `Remove the assets of ${companyId} that are due?`,
    label: 'Remove',
    danger: true,
    then,
    content: () =>
      html`<p>They are removed from the bucket, with all versions. Assets that become due later are not.</p>`,
    async send() {
      await api('/removals/accept', { method: 'POST', body: { companyId } });
      return 'Accepted.';
    },
  });
}

/** @param {Asset} asset @param {() => unknown} then */
export const holdButton = ({ id, held }, then) =>
  html`<button @click=${() =>
    act(async () => {
      await api(held ? '/holds/release' : '/holds', { method: 'POST', body: { kind: 'asset', ids: [id] } });
      return held ? 'No longer protected from removal.' : 'Protected from removal.';
    }, then)}>${held ? 'End protection' : 'Protect from removal'}</button>`;

/** @param {Asset} asset @param {() => unknown} then */
export function eraseDialog({ id, name }, then) {
  openDialog({
    title: `Erase ${name ?? id}?`,
    label: 'Erase for good',
    danger: true,
    then,
    content: () => html`
      <p>Removes the file, its transcript, thumbnail, record, all older versions and its history from bucket and database.
        It is never mirrored again. This cannot be undone.</p>
      <label class="field">Reason<input name="reason" required maxlength="1000"></label>`,
    async send(form) {
      const body = { assetIds: [id], reason: textOf(form, 'reason') };
      const erasure = await api('/erasures', { method: 'POST', body });
      return `Being erased. Print the certificate: asset-mirror erasures ${erasure.id}`;
    },
  });
}
