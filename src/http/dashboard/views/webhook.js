/** @import { Delivery, Webhook } from '../types.d.ts' */
import { act } from '../actions.js';
import { api } from '../api.js';
import { openDialog, textOf } from '../dialog.js';
import { counted, number } from '../format.js';
import { listOf } from '../lists.js';
import { loaderOf } from '../loader.js';
import { subjectOf } from '../names.js';
import { head, listed, notYet, pill, time, trouble } from '../parts.js';
import { ifMay, may, rolesNeeded } from '../permissions.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import {
  enableOrDisable,
  removeWebhookDialog,
  rotateSecretDialog,
  webhookDetail,
  webhookDialog,
  webhookName,
  webhookPath,
} from '../webhook-dialogs.js';
import { filterLabels, filterName } from '../webhook-filters.js';
import { webhookPill } from './webhooks.js';

const loader = loaderOf(async (id) => {
  /** @type {{ webhooks: Webhook[] }} */
  const { webhooks } = await api('/webhooks');
  return { webhook: webhooks.find((one) => one.id === id) };
});
/** @type {ReturnType<typeof listOf<Delivery>>} */
let deliveries = listOf('', 'deliveries');
/** @type {Delivery['state'] | undefined} */
let shown;

const path = () => webhookPath(loader.id);

/** @param {Delivery['state'] | undefined} state */
function filter(state) {
  shown = state;
  return deliveries.filter({ state });
}
const refresh = () => Promise.all([loader.refresh(), deliveries.refresh()]);

export const webhookView = {
  title: 'Webhook',
  /** @param {string[]} path */
  async open([wantedId = '']) {
    if (wantedId !== loader.id) deliveries = listOf(`${webhookPath(wantedId)}/deliveries`, 'deliveries');
    await Promise.all([loader.open(wantedId), filter(undefined)]);
  },
  refresh,
  render() {
    const { found, error } = loader;
    if (!found?.webhook) return notYet(found ? new Error('There is no such webhook endpoint.') : error);
    const { webhook } = found;
    const { waiting, kinds, filters, oldSecretUntil, fromEnvironment } = webhook;
    return html`
      <nav aria-label="You are here" class="crumbs"><a href="#/webhooks">Webhooks</a></nav>
      ${trouble(error)}
      <section class="card" aria-labelledby="webhook-title">
        <div class="head"><div><h1 id="webhook-title" tabindex="-1">${webhookName(webhook)}</h1>
          <p class="soft">${webhookDetail(webhook)}</p></div><p class="state">${webhookPill(webhook)}</p></div>
        ${
          webhook.state === 'gone'
            ? html`<p class="banner bad">The endpoint answered 410 (Gone), so nothing is sent to it. ${fromEnvironment ? 'Correct WEBHOOK_URL, and restart asset-mirror.' : 'Events wait until you enable it again.'}</p>`
            : nothing
        }
        <dl class="facts">
          <div><dt>Waiting</dt><dd>${number(waiting)}</dd></div>
          <div><dt>Kinds</dt><dd>${kinds.join(', ')}</dd></div>
          ${onlyOf(filters)}
          ${oldSecretUntil ? html`<div><dt>Old secret also signs until</dt><dd>${time(oldSecretUntil)}</dd></div>` : nothing}
        </dl>
        <div class="actions">${ifMay('testWebhookOf', () => html`<button @click=${() => act(sendTest, refresh)}>Send test</button>`)}
          ${ifMay('redeliver', () => html`<button @click=${redeliverDialog}>Redeliver failed …</button>`)}${fromEnvironment || !may('changeWebhook') ? nothing : changes(webhook)}</div>
        ${rolesNeeded({ 'Send test': 'testWebhookOf', Redeliver: 'redeliver', ...(fromEnvironment ? {} : { 'Change the endpoint': 'changeWebhook' }) })}
      </section>
      <section class="card" aria-labelledby="log-title">
        <div class="head"><h2 id="log-title">Messages</h2>
          <div class="segments" role="group" aria-label="State">${states.map(
            ([state, word]) =>
              html`<button aria-pressed=${shown === state} @click=${() => filter(state)}>${word}</button>`,
          )}</div></div>
        ${listed(deliveries, 6, table, 'No messages.', 'messages')}
      </section>`;
  },
};

/** @param {Webhook['filters']} filters */
const onlyOf = (filters) =>
  /** @type {(keyof Webhook['filters'])[]} */ (Object.keys(filters)).map(
    (list) =>
      html`<div><dt>Only these ${filterLabels[list].toLowerCase()}</dt><dd>${filters[list]?.map((value) => filterName(list, value)).join(', ')}</dd></div>`,
  );

/** The buttons that the endpoint in WEBHOOK_URL does not have. @param {Webhook} of */
const changes = (of) => html`
  <button @click=${() => webhookDialog(of, refresh)}>Change …</button>
  <button @click=${() => act(() => enableOrDisable(of), refresh)}>${of.enabled ? 'Disable' : 'Enable'}</button>
  <button @click=${() => rotateSecretDialog(of, refresh)}>Rotate the secret …</button>
  <button class="danger-quiet" @click=${() => removeWebhookDialog(of)}>Remove …</button>`;

/** @type {[Delivery['state'] | undefined, string][]} */
const states = [
  [undefined, 'All'],
  ['waiting', 'Waiting'],
  ['delivered', 'Delivered'],
  ['failed', 'Failed'],
];

/** @type {Record<Delivery['state'], [string, string]>} */
const pills = { waiting: ['plain', 'Waiting'], delivered: ['good', 'Delivered'], failed: ['bad', 'Failed'] };

/** @param {Delivery[]} rows */
const table = (rows) => html`<table role="table" class="cards small-figures">
  ${head('Message', 'State', 'About', 'Last attempt', { hidden: 'Actions' })}
  <tbody role="rowgroup">${repeat(
    rows,
    (delivery) => delivery.id,
    (delivery) => html`<tr role="row">
      <th role="rowheader" scope="row">${delivery.kind} <small>${time(delivery.at)} · <code>${delivery.id}</code></small></th>
      <td role="cell" data-label="State" class="whole">${pill(...pills[delivery.state])}</td>
      <td role="cell" data-label="About">${subjectLink(delivery)}</td>
      <td role="cell" data-label="Last attempt" class="why">${lastAttempt(delivery)}</td>
      <td role="cell" class="right">${ifMay('redeliver', () => html`<button class="small" @click=${() => act(() => redeliver(delivery), refresh)} aria-label="Redeliver ${delivery.id}">Redeliver</button>`)}</td>
    </tr>`,
  )}</tbody></table>`;

/** @param {Delivery} delivery */
function subjectLink({ assetId, connectionId }) {
  if (assetId === null && connectionId === null) return '';
  const page = assetId === null ? `connections/${connectionId}` : `assets/${encodeURIComponent(assetId)}`;
  return html`<a href="#/${page}">${subjectOf({ assetId, connectionId })}</a>`;
}

/** @param {Delivery} delivery */
function lastAttempt({ attempts, attemptedAt, status, error: reason, ms, nextAt }) {
  const result = attemptedAt
    ? [reason ?? status, `attempt ${number(attempts)}`, `${number(ms ?? 0)} ms`].join(' · ')
    : '';
  return html`${result}${attemptedAt ? html` · ${time(attemptedAt)}` : nothing}${nextAt ? html` <span class="soft">Next ${time(nextAt)}</span>` : nothing}`;
}

async function sendTest() {
  const { delivered, reason } = await api(`${path()}/test`, { method: 'POST' });
  if (!delivered) throw new Error(`The webhook endpoint did not accept the test message: ${reason}.`);
  return 'The webhook endpoint accepted the test message.';
}

/** @param {Delivery} delivery */
async function redeliver({ id: messageId }) {
  await api(`${path()}/redeliver`, { method: 'POST', body: { messageId } });
  return 'Sending the message again.';
}

function redeliverDialog() {
  const then = refresh;
  openDialog({
    title: 'Redeliver failed messages',
    label: 'Send again',
    then,
    content: () => html`
      <p>Sends all failed messages again, with the same ids.</p>
      <label class="field">Events since<input type="datetime-local" name="since" required></label>`,
    async send(form) {
      const failedSince = new Date(textOf(form, 'since') ?? 0).toISOString();
      const { redelivered } = await api(`${path()}/redeliver`, { method: 'POST', body: { failedSince } });
      return `Sending ${counted(redelivered, 'message')} again.`;
    },
  });
}
