import { sidecarKeys } from '../storage/keys.ts';
import type { Storage, Stored } from '../storage/storage.ts';
import type { Asset, Kept, Media, SidecarStates, TranscriptState } from '../store/database/schema.ts';

/** The `.asset.json` beside a media file: what has one is whole, for it is written last. */
export interface AssetRecord {
  version: 1;
  companyId: string;
  /** As the API gave it, without signed links. */
  asset: Record<string, unknown>;
  media: Omit<Media, 'version'>;
  transcript: { state: TranscriptState; keys: string[] };
  thumbnail: { key: string; bytes: number } | null;
  /** ISO 8601. */
  mirroredAt: string;
}

/** Of the record and the sidecars that an asset has now, what was stored: nothing that others have left. */
export function sidecarsOf(
  { sidecarFiles, transcriptKeys, thumbnail }: SidecarStates,
  recordKey: string,
): Record<string, Kept> {
  const kept: Record<string, Kept> = {};
  for (const key of [recordKey, ...(transcriptKeys ?? []), ...(thumbnail ? [thumbnail.key] : [])]) {
    if (sidecarFiles[key]) kept[key] = sidecarFiles[key];
  }
  return kept;
}

export function keptOf({ bytes, etag, checksums }: Stored): Kept {
  return { bytes, etag: etag ?? null, crc32: checksums.crc32! };
}

export function recordOf(
  asset: Asset,
  media: Media,
  api: Record<string, unknown>,
  sidecars: SidecarStates,
  mirroredAt: Date,
): AssetRecord {
  const { version: _, ...facts } = media;
  return {
    version: 1,
    companyId: asset.companyId,
    asset: api,
    media: facts,
    transcript: { state: sidecars.transcriptState, keys: sidecars.transcriptKeys ?? [] },
    thumbnail: sidecars.thumbnail,
    mirroredAt: mirroredAt.toISOString(),
  };
}

export async function writeRecord(storage: Storage, record: AssetRecord, signal: AbortSignal): Promise<Stored> {
  const key = sidecarKeys.record(record.media.key);
  return storage.put(key, `${JSON.stringify(record, null, 2)}\n`, { contentType: 'application/json', signal });
}
