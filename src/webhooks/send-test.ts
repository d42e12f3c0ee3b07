import { randomUUID } from 'node:crypto';
import { reasonOf } from '../errors.ts';
import { version } from '../version.ts';
import type { WebhookEndpoint } from './deliver.ts';
import { type Answer, createWebhookSender } from './sender.ts';

/** Sends a test message at once and without retries. Undefined: no endpoint is configured. */
export async function sendTest({ url, keys = [], allowPrivate }: WebhookEndpoint): Promise<Answer | undefined> {
  if (url === undefined) return undefined;
  const sender = createWebhookSender({ url, keys, allowPrivate, version });
  const id = `msg_${randomUUID().replaceAll('-', '')}`;
  const body = JSON.stringify({ type: 'webhook.test', timestamp: new Date().toISOString(), data: {} });
  try {
    return await sender.send({ id, body });
  } catch (error) {
    return { taken: false, reason: reasonOf(error) };
  } finally {
    await sender.close();
  }
}
