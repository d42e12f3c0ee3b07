/** @import { Connection, Plan, PlanProgress } from './types.d.ts' */
import { api, linesOf, queryOf } from './api.js';
import { copyField, openDialog, whileOpen } from './dialog.js';
import { bytes, counted, duration, number, when } from './format.js';
import { nameOf } from './names.js';
import { companiesOf } from './parts.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { sentence } from './words.js';

/** @param {Connection} connection @param {() => unknown} then */
export function disconnectDialog(connection, then) {
  openDialog({
    title: `Disconnect ${nameOf(connection)}?`,
    label: 'Disconnect',
    danger: true,
    then,
    content: () => html`
      <p>Ends the connection and revokes its grant at the library. It no longer mirrors ${companiesOf(connection)}.</p>
      <p>The bucket keeps its files. The user must connect again to continue.</p>`,
    async send() {
      const { revoked } = await api(`/connections/${connection.id}/disconnect`, { method: 'POST' });
      return revoked === false
        ? 'Disconnected. The grant could not be revoked at the library; the user can remove it there, in the profile page.'
        : 'Disconnected.';
    },
  });
}

/** @param {Connection | undefined} connection undefined: a new one */
export async function linkDialog(connection) {
  const { url, expiresAt } = await api('/connect-links', {
    method: 'POST',
    body: connection ? { connectionId: connection.id } : {},
  });
  const link = copyField('Link', url, () => show());
  const show = openDialog({
    title: connection ? `Reconnect ${nameOf(connection)}` : 'Connect an account',
    content: () => html`
      <p>Send this link to the person ${connection ? 'whose account it is' : 'whose library you want to mirror'}. It works until ${when(expiresAt)}.</p>
      ${link.field()}
      <p class="row">${link.button()}
        <a class="button" href=${url} target="_blank" rel="noopener">Open it here</a></p>`,
  });
}

/** @param {Connection} connection */
export async function planDialog(connection) {
  /** @type {PlanProgress | null | undefined} */
  let progress;
  /** @type {Plan | undefined} */
  let plan;
  /** @type {string | undefined} */
  let error;
  const show = openDialog({
    title: `What a full sync of ${nameOf(connection)} would transfer`,
    content: () => html`
      ${error || plan ? nothing : html`<p>Listing the library … <span class="soft">${progress ? `${counted(progress.listed, 'asset')} so far` : ''}</span></p>`}
      <div aria-live="polite">${error ? html`<p class="banner bad">${error}</p>` : plan ? planOf(plan) : nothing}</div>`,
  });
  const signal = whileOpen();
  try {
    const lines =
      /** @type {AsyncGenerator<{ progress?: PlanProgress | null, result?: Plan, error?: { detail: string } }>} */ (
        linesOf(`/plan${queryOf({ connectionId: connection.id })}`, { signal })
      );
    for await (const line of lines) {
      progress = line.progress ?? progress;
      plan = line.result;
      error = line.error?.detail;
      show();
    }
  } catch (problem) {
    if (signal.aborted) return;
    error = /** @type {Error} */ (problem).message;
    show();
  }
}

/** @param {Plan} plan */
const planOf = ({ toMove, byKind, time, listed, problems }) => html`
  ${listed === 0 && problems.length > 0 ? html`<p class="big">The library could not be listed</p>` : html`<p class="big">${counted(toMove.assets, 'asset')}<small>${bytes(toMove.bytes)}${time.seconds === null ? '' : `, ${time.seconds < 1 ? '' : 'about '}${duration(time.seconds)}`} · ${number(listed)} listed</small></p>`}
  <dl class="facts">${Object.values(byKind)
    .filter(({ assets }) => assets > 0)
    .map(
      ({ text, assets, bytes: size }) =>
        html`<div><dt>${sentence(text)}</dt><dd>${number(assets)} · ${bytes(size)}</dd></div>`,
    )}</dl>
  ${problems.map((problem) => html`<p class="banner warn">${problem}</p>`)}`;
