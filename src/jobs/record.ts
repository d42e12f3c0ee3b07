import { beside } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type { Asset, Media, ThumbnailState, TranscriptState } from '../store/schema.ts';

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

/** What lies beside the media: transcript and thumbnail, each with where it stands. */
export interface Artefacts {
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  transcriptDeadline: Date | null;
  thumbnailState: ThumbnailState;
  thumbnail: { key: string; bytes: number } | null;
}

export function recordOf(
  asset: Asset,
  media: Media,
  api: Record<string, unknown>,
  artefacts: Artefacts,
  mirroredAt: Date,
): AssetRecord {
  const { version: _, ...facts } = media;
  return {
    version: 1,
    companyId: asset.companyId,
    asset: api,
    media: facts,
    transcript: { state: artefacts.transcriptState, keys: artefacts.transcriptKeys ?? [] },
    thumbnail: artefacts.thumbnail,
    mirroredAt: mirroredAt.toISOString(),
  };
}

/** Writes the record; returns its key. */
export async function writeRecord(storage: Storage, record: AssetRecord, signal: AbortSignal): Promise<string> {
  const key = beside.record(record.media.key);
  await storage.put(key, `${JSON.stringify(record, null, 2)}\n`, { contentType: 'application/json', signal });
  return key;
}
