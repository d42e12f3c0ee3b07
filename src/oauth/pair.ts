import { z } from 'zod';
import type { Sealer } from './seal.ts';

const pair = z.object({
  accessToken: z.string(),
  refreshToken: z.string(),
  /** LIBRARY_CLIENT_ID of the app registration that the pair was issued to. */
  clientId: z.string(),
});
export type TokenPair = z.infer<typeof pair>;

/** Binds a sealed value to its owner: a pair to a user, or to a consent whose user is not known yet; secrets to a webhook. */
export const purposeOf = {
  user: (userId: string) => `tokens of ${userId}`,
  consent: (id: string) => `consent ${id}`,
  webhook: (id: string) => `webhook ${id}`,
};

export const sealPair = (sealer: Sealer, purpose: string, tokens: TokenPair): string =>
  sealer.seal(purpose, JSON.stringify(tokens));

/** @throws Error that names the missing key, or says that the pair was altered */
export const openPair = (sealer: Sealer, purpose: string, envelope: string): TokenPair =>
  pair.parse(JSON.parse(sealer.open(purpose, envelope)));
