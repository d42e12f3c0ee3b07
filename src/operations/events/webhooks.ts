import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { reasonOf } from '../../floor/errors.ts';
import { defaultWebhookKinds, environmentEndpoint, webhookKinds } from '../../floor/webhook-kinds.ts';
import type { Sealer } from '../../oauth/seal.ts';
import { newWebhookSecret, openWebhook, sealWebhook, validSecrets, withSecret } from '../../oauth/webhook-secrets.ts';
import { unknownTypes } from '../../source/schemas.ts';
import type { Endpoint, EndpointFilters } from '../../store/events/endpoints.ts';
import { shownAddress } from '../../store/events/webhook-address.ts';
import type { Store } from '../../store/store.ts';
import { existingConnection } from '../connections/connections.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, text, time } from '../fields.ts';
import { Refused } from '../refused.ts';

export const testedWebhook = z
  .object({ delivered: z.boolean(), reason: z.string().nullable().describe('Why it was not delivered.') })
  .meta({ id: 'TestedWebhook' });

const address = text.refine((value) => {
  const url = URL.parse(value);
  return /^https?:$/.test(url?.protocol ?? '') && !url?.username && !url?.password && !url?.hash;
}, 'expected an address such as https://hooks.example.com/mirror');
const kinds = z.array(z.enum(webhookKinds)).min(1, 'expected at least one kind');
const values = z.array(text).min(1, 'expected at least one value').max(100).optional();
const filters = z
  .strictObject({ connectionIds: values, companyIds: values, projectIds: values, assetTypes: values })
  .describe('An event is sent if it matches one value of each list that is given.');

export const webhookRequest = z
  .strictObject({
    url: address,
    kinds: kinds
      .optional()
      .describe('Default: all except `asset.mirrored`, `asset.replaced`, `asset.transcript` and `asset.gone`.'),
    filters: filters.optional(),
    description: text.nullable().optional(),
    enabled: z.boolean().optional(),
  })
  .meta({ id: 'WebhookRequest' });
export const webhookChange = webhookRequest
  .partial()
  .extend({
    rotateSecret: z
      .literal(true)
      .optional()
      .describe('Make a new secret. For 24 hours, the old secret signs the messages, too.'),
  })
  .meta({ id: 'WebhookChange' });
export type WebhookRequest = z.infer<typeof webhookRequest>;
export type WebhookChange = z.infer<typeof webhookChange>;

const webhookStates = ['working', 'failing', 'gone', 'disabled'] as const;
const webhookAnswer = z
  .object({
    id: z.string(),
    url: z.string().describe('The beginning of its address. The rest may be a secret, so it is not shown.'),
    description: z.string().nullable(),
    kinds: z.array(z.string()),
    filters,
    enabled: z.boolean(),
    state: z.enum(webhookStates).describe('`gone`: the endpoint answered 410. Events wait until it is enabled again.'),
    fromEnvironment: z.boolean().describe('It is set by WEBHOOK_URL, and cannot be changed here.'),
    waiting: count.describe('Events that are still to be sent.'),
    oldSecretUntil: time.nullable().describe('Until this time, the replaced secret signs the messages, too.'),
    createdAt: time,
  })
  .meta({ id: 'Webhook' });
export const webhookList = z.object({ webhooks: z.array(webhookAnswer) }).meta({ id: 'WebhookList' });
export const changedWebhook = webhookAnswer
  .extend({ secret: z.string().nullable().describe('A new secret, which is shown only now.') })
  .meta({ id: 'ChangedWebhook' });
export const removedWebhook = z.object({ id: z.string() }).meta({ id: 'RemovedWebhook' });

type Deps = Pick<OperationsDeps, 'store' | 'sealer' | 'sendTestWebhook'>;

export function webhookOperations(deps: Deps) {
  const { store, sealer } = deps;
  async function webhook(id: string) {
    const found = (await store.endpoints.list()).find((one) => one.id === id);
    return described(sealer, found ?? unknown(id));
  }

  return {
    async webhooks() {
      return { webhooks: (await store.endpoints.list()).map((found) => described(sealer, found)) };
    },

    /** Adds an endpoint. Its secret is in this answer only. */
    async addWebhook({ url, ...request }: WebhookRequest) {
      const id = `ep_${randomBytes(6).toString('hex')}`;
      const secret = newWebhookSecret();
      await checkFilters(store, request.filters);
      await store.endpoints.save(id, {
        url: shownAddress(url),
        sealed: sealWebhook(sealer, id, { url, secrets: [{ secret }] }),
        description: request.description ?? null,
        kinds: request.kinds ?? defaultWebhookKinds,
        filters: request.filters ?? {},
        enabled: request.enabled ?? true,
      });
      return { ...(await webhook(id)), secret };
    },

    /** Changes what is given. Enabling an endpoint that answered 410 sends it what waits. */
    async changeWebhook(
      id: string,
      request: WebhookChange,
    ): Promise<ReturnType<typeof described> & { secret: string | null }> {
      const { url, rotateSecret, ...change } = request;
      const before = await changeable(store, id);
      await checkFilters(store, change.filters);
      const contents = opened(sealer, id, before.sealed);
      const secret = rotateSecret ? newWebhookSecret() : null;
      const moved = { ...contents, url: url ?? contents.url };
      const after = secret === null ? moved : withSecret(moved, secret, Date.now());
      const isChanged = await store.endpoints.change(before, {
        url: shownAddress(after.url),
        sealed: sealWebhook(sealer, id, after),
        description: change.description === undefined ? before.description : change.description,
        kinds: change.kinds ?? before.kinds,
        filters: change.filters ?? before.filters,
        enabled: change.enabled ?? before.enabled,
        goneAt: change.enabled === undefined ? before.goneAt : null,
      });
      // Another operator has changed it meanwhile.
      if (!isChanged) return this.changeWebhook(id, request);
      return { ...(await webhook(id)), secret };
    },

    /** Removes an endpoint, with what waits for it and its log. */
    async removeWebhook(id: string) {
      await changeable(store, id);
      await store.endpoints.remove(id);
      return { id };
    },

    /** Sends a test message to the endpoint in the environment. */
    testWebhook: () => sendTest(deps, { id: environmentEndpoint, sealed: null }),

    /** Sends a test message to an endpoint, also to one that is disabled. */
    testWebhookOf: async (id: string) => sendTest(deps, await existingWebhook(store, id)),
  };
}

/** @throws Refused 409 if this process has no such endpoint, or cannot read its secrets */
async function sendTest({ sealer, sendTestWebhook }: Deps, endpoint: Pick<Endpoint, 'id' | 'sealed'>) {
  if (endpoint.sealed !== null) opened(sealer, endpoint.id, endpoint.sealed);
  const answer = await sendTestWebhook(endpoint);
  if (!answer) {
    throw new Refused(
      409,
      'webhook_not_configured',
      'No webhook endpoint is configured. Set WEBHOOK_URL and WEBHOOK_SECRET, and restart asset-mirror. Or test one of `asset-mirror webhooks list` by its id.',
    );
  }
  return { delivered: answer.delivered, reason: answer.reason ?? null };
}

type Found = Awaited<ReturnType<Store['endpoints']['list']>>[number];

const described = (sealer: Sealer, { sealed, goneAt, createdAt, failing, ...endpoint }: Found) => ({
  ...endpoint,
  enabled: endpoint.enabled && goneAt === null,
  state: stateOf(endpoint.enabled, goneAt, failing),
  fromEnvironment: sealed === null,
  oldSecretUntil: oldSecretUntil(sealer, endpoint.id, sealed),
  createdAt: createdAt.toISOString(),
});

function oldSecretUntil(sealer: Sealer, id: string, sealed: string | null): string | null {
  if (sealed === null) return null;
  try {
    const ends = validSecrets(openWebhook(sealer, id, sealed), Date.now()).map(({ until = 0 }) => until);
    return Math.max(...ends) > 0 ? new Date(Math.max(...ends)).toISOString() : null;
  } catch {
    return null;
  }
}

/** @throws Refused 409 if a key is missing */
function opened(sealer: Sealer, id: string, sealed: string) {
  try {
    return openWebhook(sealer, id, sealed);
  } catch (error) {
    throw new Refused(
      409,
      'webhook_unreadable',
      `${reasonOf(error)}. If the key is lost, remove the webhook endpoint.`,
    );
  }
}

function stateOf(enabled: boolean, goneAt: Date | null, failing: number): (typeof webhookStates)[number] {
  if (!enabled) return 'disabled';
  if (goneAt) return 'gone';
  return failing > 0 ? 'failing' : 'working';
}

function unknown(id: string): never {
  throw new Refused(
    404,
    'webhook_not_found',
    `There is no webhook endpoint ${id}. List them with \`asset-mirror webhooks list\`.`,
  );
}

/** @throws Refused 404 */
export const existingWebhook = async (store: Store, id: string): Promise<Endpoint> =>
  (await store.endpoints.get(id)) ?? unknown(id);

/** @throws Refused 404 for an unknown endpoint, 409 for the one in the environment */
async function changeable(store: Store, id: string): Promise<Endpoint & { sealed: string }> {
  const endpoint = await existingWebhook(store, id);
  const { sealed } = endpoint;
  if (sealed !== null) return { ...endpoint, sealed };
  throw new Refused(
    409,
    'webhook_from_environment',
    'This webhook endpoint is set by WEBHOOK_URL, WEBHOOK_SECRET and WEBHOOK_EVENTS. Change these, and restart asset-mirror.',
  );
}

/** @throws Refused 404 for an unknown connection, 400 for an unknown company or type. A project may still be empty. */
async function checkFilters(store: Store, filters: EndpointFilters = {}): Promise<void> {
  for (const id of filters.connectionIds ?? []) await existingConnection(store, id);
  const unknown = [
    ...(await store.connections.unknownCompanies(filters.companyIds ?? [])),
    ...(await store.assets.namesOfNoAsset('assetType', unknownTypes(filters.assetTypes ?? []))),
  ];
  if (unknown.length > 0) {
    throw new Refused(400, 'unknown_name', `There is no such company or asset type: ${unknown.join(', ')}.`);
  }
}
