import { Agent, request } from 'undici';
import { namingSetting, reasonOf, retryAfter } from '../errors.ts';
import { guardAddresses } from '../public-address.ts';
import { version } from '../version.ts';
import { signatureHeaders } from './signature.ts';

/** Whether the endpoint accepted a message. `waitMs`: how long it asked to wait; `gone`: it wants no more events (410). */
export type Answer =
  | { delivered: true }
  | { delivered: false; reason: string; waitMs?: number | undefined; gone?: true };

export type WebhookSender = ReturnType<typeof createWebhookSender>;

const timeoutMs = 15_000;

/** Sends messages as in Standard Webhooks. Redirects are not followed; only a 2xx is a success. */
export function createWebhookSender(options: { url: string; keys: Buffer[]; allowPrivate: boolean }) {
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
  async function post(message: { id: string; body: string }): Promise<Answer> {
    guard.check(new URL(options.url).hostname);
    const response = await request(options.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'user-agent': `asset-mirror/${version}`,
        ...signatureHeaders(options.keys, { ...message, at: new Date() }),
      },
      body: message.body,
      dispatcher: agent,
      signal: AbortSignal.timeout(timeoutMs),
    });
    await response.body.dump({ limit: 64 * 1024 }).catch(() => {});
    const { statusCode, headers } = response;
    if (statusCode >= 200 && statusCode < 300) return { delivered: true };
    return {
      delivered: false,
      reason: `the endpoint answered ${statusCode}`,
      waitMs: retryAfter(headers['retry-after'], headers.date)?.waitMs,
      ...(statusCode === 410 && { gone: true }),
    };
  }
  return {
    send: (message: { id: string; body: string }): Promise<Answer> =>
      post(message).catch((error) => ({ delivered: false, reason: reasonOf(namingSetting(error, 'WEBHOOK_URL')) })),
    close: () => agent.destroy(),
  };
}
