/** @import { Token } from './types.d.ts' */
import { api } from './api.js';
import { openDialog, secretDialog, textOf } from './dialog.js';
import { html } from './vendor/lit-html/lit-html.js';

const lifetimes = [7, 30, 90, 365];

/** @param {() => unknown} refresh */
export function tokenDialog(refresh) {
  /** @type {string | undefined} */
  let token;
  const then = () => {
    refresh();
    if (token !== undefined) secretDialog('The new API token', 'Token', token, howToUse);
  };
  openDialog({
    title: 'Create an API token',
    label: 'Create',
    content: () => html`
      <label class="field">Name<input name="name" required maxlength="100" autocomplete="off" placeholder="What uses it, such as ci"></label>
      <label class="field">Role<select name="role">
        <option value="viewer">viewer: read only</option><option value="operator">operator: also make changes</option>
        <option value="admin">admin: everything</option></select></label>
      <label class="field">Expires after<select name="days">${lifetimes.map((days) => html`<option value=${days} ?selected=${days === 90}>${days} days</option>`)}</select></label>`,
    async send(form) {
      const body = { name: textOf(form, 'name'), role: textOf(form, 'role'), expiresInDays: Number(form.get('days')) };
      ({ token } = await api('/tokens', { method: 'POST', body }));
      return 'The token was created.';
    },
    then,
  });
}

const howToUse = html`Programs send it as <code>Authorization: Bearer</code>, the command line as <code>ASSET_MIRROR_TOKEN</code>.`;

/** @param {Token} token @param {() => unknown} then */
export function revokeTokenDialog({ id, name }, then) {
  openDialog({
    title: `Revoke ${name}?`,
    label: 'Revoke',
    danger: true,
    then,
    content: () => html`<p>Programs that use this token stop working at once.</p>`,
    async send() {
      await api(`/tokens/${encodeURIComponent(id)}`, { method: 'DELETE' });
      return `${name} was revoked.`;
    },
  });
}
