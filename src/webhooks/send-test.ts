import { randomUUID } from 'node:crypto';
import type { Answer, Target, WebhookSender } from './sender.ts';

/** Sends a test message at once and without retries. */
export function sendTest(sender: WebhookSender, target: Target): Promise<Answer> {
  const id = `msg_${randomUUID().replaceAll('-', '')}`;
  const body = JSON.stringify({ type: 'webhook.test', timestamp: new Date().toISOString(), data: {} });
  return sender.send(target, { id, body });
}
