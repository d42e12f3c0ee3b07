/** @import { FacetList, Webhook, WebhookChange, WebhookKind } from './types.d.ts' */
import { api } from './api.js';
import { openDialog, secretDialog, textOf } from './dialog.js';
import { withLabels } from './refusals.js';
import { html } from './vendor/lit-html/lit-html.js';
import { filterFields, filterLabels, filtersIn } from './webhook-filters.js';

/** What people call an endpoint. @param {Webhook} webhook */
export const webhookName = ({ description, url, fromEnvironment }) =>
  description ?? (fromEnvironment ? `WEBHOOK_URL (${url})` : url);

/** The address, if the name is not the address. @param {Webhook} webhook */
export const webhookDetail = ({ description, url }) => (description === null ? '' : url);

/** The address of an endpoint in the API. @param {string} id */
export const webhookPath = (id) => `/webhooks/${encodeURIComponent(id)}`;

/** What the kinds of events say. */
const defaultKinds = {
  'connection.disconnected': 'A user must connect again',
  'connection.recovered': 'A connection works again',
  'company.gained': 'A connection can now read a company',
  'company.lost': 'A connection can no longer read a company',
  'company.held': 'Too many changes wait for an operator',
  'sync.failed': 'A sync failed',
  'bucket.differs': 'The bucket differs from the database',
  'drill.passed': 'A restore drill passed',
  'drill.failed': 'A restore drill failed',
  'asset.failed': 'An asset cannot be mirrored',
  'asset.damaged': 'Objects are damaged or missing in the bucket',
};
/** These happen once per asset: most endpoints would get too many messages. */
const kindsPerAsset = {
  'asset.mirrored': 'Each asset that is mirrored',
  'asset.replaced': 'Each asset with a newer file',
  'asset.transcript': 'Each asset with a new transcript',
  'asset.gone': 'Each asset deleted in the library',
};
/** @type {Record<WebhookKind, string>} */
const kindWords = { ...defaultKinds, ...kindsPerAsset };
const kinds = /** @type {WebhookKind[]} */ (Object.keys(kindWords));

/** @type {Record<string, string>} */
const labels = { url: 'Address', description: 'Description', kinds: 'Kinds' };
/** The label of a field such as `filters.companyIds.0`. @param {string} field */
const labelOf = (field) => {
  const [first = '', list = ''] = field.split('.');
  return labels[first] ?? /** @type {Record<string, string>} */ (filterLabels)[list];
};

/** @param {unknown} one @param {unknown} other */
const differ = (one, other) => JSON.stringify(one) !== JSON.stringify(other);

/**
 * Adds a webhook endpoint, or changes one. Only changed values are sent.
 * @param {Webhook | undefined} webhook @param {() => unknown} refresh
 */
export function webhookDialog(webhook, refresh) {
  /** @type {string | undefined} */
  let secret;
  const then = afterwards(refresh, () => secret);
  const before = webhook?.kinds ?? Object.keys(defaultKinds);
  const filtersBefore = webhook?.filters ?? {};
  /** @type {FacetList['facets'] | undefined} */
  let facets;
  const show = openDialog({
    title: webhook ? `Change ${webhookName(webhook)}` : 'Add a webhook endpoint',
    label: webhook ? 'Save' : 'Add',
    then,
    content: () => html`
      <label class="field">Address<input type="url" name="url" ?required=${!webhook} autocomplete="off"
        placeholder=${webhook ? `Unchanged: ${webhook.url}` : 'https://hooks.example.com/mirror'}></label>
      <label class="field">Description<input name="description" maxlength="1000" .value=${webhook?.description ?? ''} autocomplete="off"></label>
      <fieldset><legend>Kinds of events</legend><div class="checks">${kinds.map(
        (kind) =>
          html`<label><input type="checkbox" name="kinds" value=${kind} ?checked=${before.includes(kind)}><span>${kind}<small>${kindWords[kind]}</small></span></label>`,
      )}</div></fieldset>
      <fieldset class="fields two"><legend>Filters: ids, separated by commas (an event must match all; with a company filter, events without a company are not sent)</legend>${filterFields(filtersBefore, facets)}</fieldset>`,
    async send(form) {
      const url = textOf(form, 'url');
      const description = textOf(form, 'description') ?? null;
      const filters = filtersIn(form);
      const chosen = /** @type {WebhookKind[]} */ (form.getAll('kinds'));
      /** @type {WebhookChange} */
      const change = {
        ...(url !== undefined && { url }),
        ...(differ(description, webhook?.description ?? null) && { description }),
        ...(differ([...chosen].sort(), [...before].sort()) && { kinds: chosen }),
        ...(differ(filters, filtersBefore) && { filters }),
      };
      if (Object.keys(change).length === 0) return 'Nothing was changed.';
      const request = webhook
        ? api(webhookPath(webhook.id), { method: 'PATCH', body: change })
        : api('/webhooks', { method: 'POST', body: change });
      const answer = await request.catch((error) => {
        throw withLabels(error, labelOf);
      });
      secret = answer.secret ?? undefined;
      return webhook ? 'The webhook endpoint was changed.' : 'The webhook endpoint was added.';
    },
  });
  const suggest = async () => {
    ({ facets } = await api('/asset-facets'));
    show();
  };
  // Without suggestions, ids can still be typed.
  suggest().catch(() => {});
}

/** Shows a secret after the dialog that made it. @param {() => unknown} refresh @param {() => string | undefined} secret */
const afterwards = (refresh, secret) => () => {
  refresh();
  const made = secret();
  if (made !== undefined) secretDialog('Secret of the webhook endpoint', 'Secret', made, howToUse);
};

const howToUse = 'The endpoint verifies the signature of each message with this secret.';

/** @param {Webhook} webhook @param {() => unknown} refresh */
export function rotateSecretDialog(webhook, refresh) {
  /** @type {string | undefined} */
  let secret;
  const then = afterwards(refresh, () => secret);
  openDialog({
    title: `Rotate the secret of ${webhookName(webhook)}?`,
    label: 'Rotate the secret',
    content: () =>
      html`<p>Makes a new secret and shows it once. For 24 hours, the old secret signs the messages, too.</p>`,
    then,
    async send() {
      ({ secret } = await api(webhookPath(webhook.id), { method: 'PATCH', body: { rotateSecret: true } }));
      return 'The secret was rotated.';
    },
  });
}

/** @param {Webhook} webhook */
export function removeWebhookDialog(webhook) {
  openDialog({
    title: `Remove ${webhookName(webhook)}?`,
    label: 'Remove',
    danger: true,
    content: () => html`<p>Removes the endpoint, the messages that wait for it, and its log. The secret is lost.</p>`,
    async send() {
      await api(webhookPath(webhook.id), { method: 'DELETE' });
      location.hash = '#/webhooks';
      return 'The webhook endpoint was removed.';
    },
  });
}

/** An endpoint that answered 410 gets the waiting events when it is enabled. @param {Webhook} webhook */
export async function enableOrDisable({ id, enabled }) {
  await api(webhookPath(id), { method: 'PATCH', body: { enabled: !enabled } });
  return enabled ? 'Disabled. Events that happen while it is disabled are never sent to it.' : 'Enabled.';
}
