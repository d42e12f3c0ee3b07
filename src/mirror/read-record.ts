import { z } from 'zod';
import { asset, download, problemOf, storable } from '../source/schemas.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { AssetRecord } from './record.ts';

const key = z.string().min(1).max(4000);
const bytes = z.int().min(0);

const schema = z.object({
  version: z.literal(1, 'expected 1, the only one that is known here'),
  companyId: asset.shape.id,
  asset: asset.extend({ download: download.nullish() }),
  media: z.object({
    key,
    bytes,
    variant: z.enum(['original', 'mp4']),
    checksums: z.record(z.string(), z.string()),
    etag: z.string().nullable(),
  }),
  transcript: z.object({
    state: z.enum(['none', 'pending', 'mirrored', 'no_speech', 'gave_up']),
    keys: z.array(key).max(10),
  }),
  thumbnail: z.object({ key, bytes }).nullable(),
  mirroredAt: z.iso.datetime(),
});

export type StoredRecord = z.infer<typeof schema> & Pick<AssetRecord, 'version'>;

/** Larger than any record; what is more is something else. */
export const largestRecord = 4 * 2 ** 20;

/** What ends the key of a record. */
export const recordEnding = sidecarKeys.record('');

/**
 * Reads what lies at the key of a record. It is one only if it says of itself that it belongs there: anybody may upload
 * a file with such a name.
 */
export function readRecord(at: string, text: string): { record: StoredRecord } | { problem: string } {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    return { problem: 'it is not JSON' };
  }
  const result = schema.safeParse(content);
  if (!result.success) return { problem: problemOf(result.error) };
  const record = storable(result.data);
  const { media, transcript, thumbnail } = record;
  if (sidecarKeys.record(media.key) !== at) return { problem: `it belongs beside ${media.key}` };
  // What is the asset's own may be cleared away one day: nothing else is taken for it.
  const stray = [...transcript.keys, ...(thumbnail ? [thumbnail.key] : [])].find(
    (other) => !other.startsWith(`${media.key}.`),
  );
  return stray === undefined ? { record } : { problem: `it claims ${stray}, which is not beside ${media.key}` };
}
