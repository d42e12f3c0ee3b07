import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { purposeOf } from './pair.ts';
import type { Sealer } from './seal.ts';

const contents = z.object({
  url: z.string(),
  /** Newest first. `until`: when a replaced one ends, in epoch milliseconds. */
  secrets: z.array(z.object({ secret: z.string(), until: z.number().optional() })),
});
/** The address of a webhook endpoint, and the secrets that sign its messages. */
export type WebhookSecrets = z.infer<typeof contents>;

/** How long a replaced secret still signs, next to the new one. */
const overlapMs = 24 * 3_600_000;
/** Maximum of secrets that sign a message. */
const mostSecrets = 3;

/** A secret in the form of Standard Webhooks: `whsec_` and 32 bytes in base64. */
export const newWebhookSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`;

/** The secrets that still sign at this time. */
export const validSecrets = ({ secrets }: WebhookSecrets, now: number) =>
  secrets.filter(({ until }) => until === undefined || until > now);

/** Adds a secret. The others end after the overlap. */
export function withSecret(webhook: WebhookSecrets, secret: string, now: number): WebhookSecrets {
  const older = validSecrets(webhook, now).map((one) => ({ ...one, until: one.until ?? now + overlapMs }));
  return { ...webhook, secrets: [{ secret }, ...older].slice(0, mostSecrets) };
}

export const sealWebhook = (sealer: Sealer, id: string, webhook: WebhookSecrets): string =>
  sealer.seal(purposeOf.webhook(id), JSON.stringify(webhook));

/** @throws Error that names the missing key, or says that it was altered */
export const openWebhook = (sealer: Sealer, id: string, envelope: string): WebhookSecrets =>
  contents.parse(JSON.parse(sealer.open(purposeOf.webhook(id), envelope)));
