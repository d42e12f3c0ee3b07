/** @import { Webhook } from '../types.d.ts' */
import { number } from '../format.js';
import { listOf } from '../lists.js';
import { head, listed, pill } from '../parts.js';
import { ifMay, rolesNeeded } from '../permissions.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html } from '../vendor/lit-html/lit-html.js';
import { webhookDetail, webhookDialog, webhookName } from '../webhook-dialogs.js';

/** @type {ReturnType<typeof listOf<Webhook>>} */
const webhooks = listOf('/webhooks', 'webhooks');

/** @type {Record<Webhook['state'], [string, string]>} */
const states = {
  working: ['good', 'Working'],
  failing: ['bad', 'Failing'],
  gone: ['bad', 'Gone (410)'],
  disabled: ['warn', 'Disabled'],
};
/** @param {Pick<Webhook, 'state'>} webhook */
export const webhookPill = ({ state }) => pill(...states[state]);

export const webhooksView = {
  title: 'Webhooks',
  open: () => webhooks.filter({}),
  refresh: () => webhooks.refresh(),
  render: () => html`
    <section class="card" aria-labelledby="webhooks-title">
      <div class="head"><h1 id="webhooks-title" tabindex="-1">Webhooks</h1>
        ${ifMay('addWebhook', () => html`<button class="main" @click=${() => webhookDialog(undefined, webhooks.refresh)}>Add endpoint …</button>`)}</div>
      ${rolesNeeded({ 'Add and change endpoints': 'addWebhook' })}
      ${listed(webhooks, 4, table, 'No webhook endpoint yet.')}
    </section>`,
};

/** @param {Webhook[]} rows */
const table = (rows) => html`<table role="table" class="cards small-figures">
  ${head('Endpoint', 'State', { right: 'Waiting' }, 'Kinds')}
  <tbody role="rowgroup">${repeat(
    rows,
    ({ id }) => id,
    (webhook) => html`<tr role="row">
      <th role="rowheader" scope="row"><a href="#/webhooks/${webhook.id}">${webhookName(webhook)}</a><small>${webhookDetail(webhook)}</small></th>
      <td role="cell" data-label="State" class="whole">${webhookPill(webhook)}</td>
      <td role="cell" data-label="Waiting" class="right figures">${number(webhook.waiting)}</td>
      <td role="cell" data-label="Kinds" class="why">${webhook.kinds.join(', ')}</td>
    </tr>`,
  )}</tbody></table>`;
