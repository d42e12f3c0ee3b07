/** @import { Connection } from './types.d.ts' */
import { api } from './api.js';
import { openDialog } from './dialog.js';
import { nameOf } from './names.js';
import { html } from './vendor/lit-html/lit-html.js';

/** @param {Connection | undefined} connection undefined: all */
export function verifyDialog(connection) {
  const choice = (
    /** @type {string} */ name,
    /** @type {string} */ value,
    /** @type {string} */ label,
    /** @type {string} */ hint,
    checked = false,
  ) => html`
    <label class="choice"><input type="radio" name=${name} value=${value} ?checked=${checked}>
      <span>${label}<small>${hint}</small></span></label>`;
  openDialog({
    title: connection ? `Verify ${nameOf(connection)}` : 'Verify everything',
    label: 'Verify',
    content: () => html`
      <p>Compares library, database and bucket, and reports every difference. Nothing is removed.</p>
      <fieldset><legend>How</legend>
        ${choice('depth', 'quick', 'Sizes and ETags', 'Fast: lists the bucket.', true)}
        ${choice('depth', 'deep', 'Every byte', 'Slow: reads all objects and compares their checksums.')}
      </fieldset>
      <label class="choice"><input type="checkbox" name="repair">
        <span>Repair<small>Fetches or writes again what is missing or different.</small></span></label>`,
    async send(form) {
      await verify({
        ...(connection && { connectionId: connection.id }),
        deep: form.get('depth') === 'deep',
        repair: form.has('repair'),
      });
      return 'Verification started.';
    },
  });
}

/** Starts a verification and opens its page. @param {{ connectionId?: string, deep?: boolean, repair?: boolean }} request */
export async function verify(request) {
  const { id } = await api('/verify', { method: 'POST', body: request });
  location.hash = `#/verify/${id}`;
}
