/** @import { Connection } from './types.d.ts' */
import { api } from './api.js';
import { openDialog } from './dialog.js';
import { nameOf } from './names.js';
import { html } from './vendor/lit-html/lit-html.js';

/** @param {Connection | undefined} connection undefined: all of them */
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
      <p>The library, the records and the bucket are compared. What differs is told, and nothing is removed.</p>
      <fieldset><legend>How</legend>
        ${choice('depth', 'quick', 'By length and ETag', 'As fast as the bucket lists what it has.', true)}
        ${choice('depth', 'deep', 'By every byte', 'Reads all objects and compares their checksums. It takes as long as that.')}
      </fieldset>
      <label class="choice"><input type="checkbox" name="repair">
        <span>Mend what differs<small>What is missing or another is fetched or written again.</small></span></label>`,
    async send(form) {
      await verify({
        ...(connection && { connectionId: connection.id }),
        deep: form.get('depth') === 'deep',
        repair: form.has('repair'),
      });
      return 'The comparison has been asked for.';
    },
  });
}

/** Asks for it, and goes where it is shown. @param {{ connectionId?: string, deep?: boolean, repair?: boolean }} request */
export async function verify(request) {
  const { id } = await api('/verify', { method: 'POST', body: request });
  location.hash = `#/verify/${id}`;
}
