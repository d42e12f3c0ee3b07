import { z } from 'zod';
import { shortText } from '../../floor/short-text.ts';
import { largestRecord } from '../../mirror/read-record.ts';
import { tombstoneKey } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Tombstone } from '../../store/removals/tombstones.ts';

const schema = z.object({
  version: z.literal(1),
  hash: z.string().regex(/^[\da-f]{64}$/),
  erasedAt: z.iso.datetime().transform((at) => new Date(at)),
  erasedBy: z.string().max(1000),
  reason: z.string().max(1000),
});

/** The tombstone at a key; undefined: there is no valid one. */
export async function readTombstone(
  storage: Storage,
  key: string,
  signal: AbortSignal,
): Promise<Tombstone | undefined> {
  const body = await storage.get(key, { signal });
  if (!body) return undefined;
  try {
    const { version: _, ...tombstone } = schema.parse(JSON.parse((await shortText(body, largestRecord)) ?? ''));
    return key === tombstoneKey(tombstone.hash) ? tombstone : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof z.ZodError) return undefined;
    throw error;
  }
}
