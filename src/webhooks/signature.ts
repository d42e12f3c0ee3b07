import { createHmac } from 'node:crypto';

/**
 * The key of a Standard Webhooks secret: 24 to 64 bytes in base64, with or without `whsec_` before them; undefined: it is
 * none (https://www.standardwebhooks.com, "Signature scheme").
 */
export function webhookKey(secret: string): Buffer | undefined {
  const text = secret.replace(/^whsec_/, '');
  const key = Buffer.from(text, 'base64');
  return /^[\w+/-]+=*$/.test(text) && key.length >= 24 && key.length <= 64 ? key : undefined;
}

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
