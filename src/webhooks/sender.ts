import { createHmac, randomUUID } from 'node:crypto';
import { Agent, request } from 'undici';
import { namingSetting, reasonOf, retryAfter } from '../floor/errors.ts';
import { guardAddresses } from '../floor/public-address.ts';
import { version } from '../floor/version.ts';

/** The address of an endpoint, and the keys that sign its messages. `name`: the setting to correct if the address is not reached. */
export interface Target {
  url: string;
  keys: Buffer[];
  name: string;
}

/**
 * Whether the endpoint accepted a message. `status`: of its answer, if there was one; `waitMs`: how long it asked to wait; `gone`: it
 * wants no more events (410).
 */
export type Answer = { status: number | null; ms: number } & (
  | { delivered: true }
  | { delivered: false; reason: string; waitMs?: number | undefined; gone?: true }
);

export type WebhookSender = ReturnType<typeof createWebhookSender>;

const timeoutMs = 15_000;

/** Sends messages as in Standard Webhooks. Redirects are not followed; only a 2xx is a success. */
export function createWebhookSender(options: { allowPrivate: boolean }) {
  const guard = guardAddresses({
    allows: () => options.allowPrivate,
    refusal: (where) => new Error(`${where} is not a public address; WEBHOOK_ALLOW_PRIVATE=true allows it`),
  });
  const agent = new Agent({
    connections: 8,
    pipelining: 1,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    keepAliveTimeout: 10_000,
    connect: { timeout: 10_000, lookup: guard.lookup },
  });
  async function post({ url, keys }: Target, message: { id: string; body: string }) {
    guard.check(new URL(url).hostname);
    const { statusCode, headers, body } = await request(url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': `asset-mirror/${version}`,
        ...signatureHeaders(keys, { ...message, at: new Date() }),
      },
      body: message.body,
      dispatcher: agent,
      signal: AbortSignal.timeout(timeoutMs),
    });
    await body.dump({ limit: 64 * 1024 }).catch(() => {});
    const status = statusCode;
    if (status >= 200 && status < 300) return { delivered: true as const, status };
    return {
      delivered: false as const,
      status,
      reason: `the endpoint answered ${status}`,
      waitMs: retryAfter(headers['retry-after'], headers.date)?.waitMs,
      ...(status === 410 && { gone: true as const }),
    };
  }
  return {
    async send(target: Target, message: { id: string; body: string }): Promise<Answer> {
      const began = performance.now();
      const answer = await post(target, message).catch((error) => ({
        delivered: false as const,
        status: null,
        reason: reasonOf(namingSetting(error, target.name)),
      }));
      return { ...answer, ms: performance.now() - began };
    },
    close: () => agent.destroy(),
  };
}

/** Sends a test message at once and without retries. Undefined: there is no target. */
export async function sendTest(sender: WebhookSender, target: Target | undefined): Promise<Answer | undefined> {
  if (!target) return undefined;
  const id = `msg_${randomUUID().replaceAll('-', '')}`;
  const body = JSON.stringify({ type: 'webhook.test', timestamp: new Date().toISOString(), data: {} });
  return sender.send(target, { id, body });
}

/** The headers of Standard Webhooks: id, time and one signature per key. */
function signatureHeaders(keys: Buffer[], message: { id: string; at: Date; body: string }) {
  const timestamp = Math.floor(message.at.getTime() / 1000);
  const signed = `${message.id}.${timestamp}.${message.body}`;
  return {
    'webhook-id': message.id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': keys.map((key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`).join(' '),
  };
}
