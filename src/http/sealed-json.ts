import type { z } from 'zod';
import type { Sealer } from '../oauth/seal.ts';

/** A value that its holder, such as a browser, can neither read nor change. */
export const sealJson = (sealer: Sealer, purpose: string, value: unknown): string =>
  sealer.seal(purpose, JSON.stringify(value));

/** Undefined if there is none, or it was not sealed here for this purpose. */
export function openJson<T>(
  sealer: Sealer,
  purpose: string,
  schema: z.ZodType<T>,
  sealed: string | undefined,
): T | undefined {
  try {
    return schema.parse(JSON.parse(sealer.open(purpose, sealed ?? '')));
  } catch {
    return undefined;
  }
}
