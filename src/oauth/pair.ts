import { z } from 'zod';
import type { Sealer } from './seal.ts';

const pair = z.object({ accessToken: z.string(), refreshToken: z.string() });
export type TokenPair = z.infer<typeof pair>;

/** Binds a sealed pair to its user. */
export const purposeFor = (userId: string) => `tokens of ${userId}`;

export const sealPair = (sealer: Sealer, userId: string, tokens: TokenPair): string =>
  sealer.seal(purposeFor(userId), JSON.stringify(tokens));

/** @throws Error that names the missing key, or says that the pair was altered */
export const openPair = (sealer: Sealer, userId: string, envelope: string): TokenPair =>
  pair.parse(JSON.parse(sealer.open(purposeFor(userId), envelope)));
