import type { WebhookKind } from '../floor/webhook-kinds.ts';
import type { Sealer } from '../oauth/seal.ts';
import { openWebhook, validSecrets } from '../oauth/webhook-secrets.ts';
import type { Endpoint } from '../store/events/endpoints.ts';
import type { Target } from './sender.ts';

/** WEBHOOK_URL, WEBHOOK_SECRET and WEBHOOK_EVENTS. */
export interface EnvironmentWebhook {
  url: string | undefined;
  keys: Buffer[] | undefined;
  events: WebhookKind[];
}

/** The endpoint in the environment; undefined: this process has none. */
const environmentTarget = ({ url, keys = [] }: EnvironmentWebhook): Target | undefined =>
  url === undefined ? undefined : { url, keys, name: 'WEBHOOK_URL' };

/**
 * The address of an endpoint, and the keys that sign its messages; undefined: WEBHOOK_URL is not set in this process.
 * @throws Error if its secrets cannot be decrypted
 */
export function targetOf(
  { id, sealed }: Pick<Endpoint, 'id' | 'sealed'>,
  { sealer, environment }: { sealer: Sealer; environment: EnvironmentWebhook },
): Target | undefined {
  if (sealed === null) return environmentTarget(environment);
  const webhook = openWebhook(sealer, id, sealed);
  const keys = validSecrets(webhook, Date.now()).map(({ secret }) =>
    Buffer.from(secret.slice('whsec_'.length), 'base64'),
  );
  return { url: webhook.url, keys, name: 'the address of the endpoint' };
}
