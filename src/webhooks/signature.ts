import { createHmac } from 'node:crypto';

/** The headers by which a receiver knows that a message is ours, and which it is. Signed with each key. */
export function signatureHeaders(keys: Buffer[], message: { id: string; at: Date; body: string }) {
  const timestamp = Math.floor(message.at.getTime() / 1000);
  const signed = `${message.id}.${timestamp}.${message.body}`;
  return {
    'webhook-id': message.id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': keys.map((key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`).join(' '),
  };
}
