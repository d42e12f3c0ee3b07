import { z } from 'zod';
import type { Reason } from '../floor/reason-codes.ts';
import { type ApiAsset, asset, download, problemOf, storable, versionOf } from '../source/schemas.ts';
import { sidecarKeys, versionKeys } from '../storage/keys.ts';
import type { AssetVersion } from '../store/database/schema.ts';
import type { AssetRecord } from './record.ts';

const key = z.string().min(1).max(4000);
const bytes = z.int().min(0);

const schema = z.object({
  version: z.literal(1, 'expected 1, the only known version'),
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
  sidecars: z.record(key, z.object({ bytes, crc32: z.string(), sha256: z.string().optional() })).optional(),
  mirroredAt: z.iso.datetime(),
});

const versionSchema = schema.extend({
  replacedAt: z.iso.datetime(),
  reason: z.looseObject({ code: z.string() }),
  files: z
    .array(
      z.object({
        role: z.enum(['media', 'record', 'captions', 'text', 'transcript', 'thumbnail']),
        key,
        at: key,
        versionId: z.string().optional(),
        bytes,
        etag: z.string().nullable(),
        crc32: z.string().optional(),
        sha256: z.string().optional(),
      }),
    )
    .min(1)
    .max(20),
});

export type StoredRecord = z.infer<typeof schema> & Pick<AssetRecord, 'version'>;

/** The maximum size of a record in bytes. */
export const largestRecord = 4 * 2 ** 20;

/** The end of the key of every record. */
export const recordEnding = sidecarKeys.record('');

/**
 * Reads the object at the key of a record. It counts as a record only if it names a media file with this key: a user may
 * upload a file with the name of a record.
 */
export function readRecord(at: string, text: string): { record: StoredRecord } | { problem: string } {
  const read = parse(schema, text);
  if ('problem' in read) return read;
  const { content: record } = read;
  const { media, transcript, thumbnail } = record;
  if (sidecarKeys.record(media.key) !== at) return { problem: `it belongs to ${media.key}` };
  // Sidecars may be removed later. A record must not claim the objects of another asset.
  const stray = [...transcript.keys, ...(thumbnail ? [thumbnail.key] : [])].find(
    (other) => !other.startsWith(`${media.key}.`),
  );
  return stray === undefined ? { record } : { problem: `it claims ${stray}, which does not belong to ${media.key}` };
}

function parse<T>(schema: z.ZodType<T>, text: string): { content: T } | { problem: string } {
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    return { problem: 'it is not JSON' };
  }
  const result = schema.safeParse(content);
  return result.success ? { content: storable(result.data) } : { problem: problemOf(result.error) };
}

/** Whether this may be the key of the record of a version. */
export const isVersionRecord = (at: string) =>
  at.startsWith(versionKeys.prefix) && /^[^/]+\/\d{8}T\d{9}Z\.json$/.test(at.slice(versionKeys.prefix.length));

/** Reads the record of a version. It must be at its own key, and claim only objects of its own. */
export function readVersionRecord(at: string, text: string): { version: AssetVersion } | { problem: string } {
  const read = parse(versionSchema, text);
  if ('problem' in read) return read;
  const { asset, companyId, media, files, reason, ...times } = read.content;
  const [replacedAt, mirroredAt] = [new Date(times.replacedAt), new Date(times.mirroredAt)];
  if (versionKeys.record(asset.id, replacedAt) !== at) return { problem: 'it belongs to another version' };
  const folder = versionKeys.folder(asset.id, replacedAt);
  const stray = files.find(({ key, at, versionId }) => (versionId === undefined ? !at.startsWith(folder) : at !== key));
  if (stray) return { problem: `it claims ${stray.at}` };
  return {
    version: {
      ...{ assetId: asset.id, replacedAt, companyId, projectId: asset.projectId ?? null, mirroredAt, files },
      reason: reason as Reason,
      media: { ...media, version: versionOf(asset as ApiAsset) },
      bytes: files.reduce((sum, file) => sum + file.bytes, 0),
    },
  };
}
