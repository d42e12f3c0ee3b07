import type { LeasedAsset } from '../queue/leases.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { Storage, Stored } from '../storage/storage.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { Media, SidecarStates, StoredSidecar, TranscriptState } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';

/** The `.asset.json` of a media file. It is written last, so a file that has one is complete. */
export interface AssetRecord {
  version: 1;
  companyId: string;
  /** The answer of the library about the asset, without signed links. */
  asset: Record<string, unknown>;
  media: Omit<Media, 'version'>;
  transcript: { state: TranscriptState; keys: string[] };
  thumbnail: { key: string; bytes: number } | null;
  /** Length and checksums of transcript and thumbnail, by key. Not in the record of a superseded file, which has `files`. */
  sidecars?: Record<string, Omit<StoredSidecar, 'etag'>>;
  /** ISO 8601. */
  mirroredAt: string;
  /** When this record was written, ISO 8601. Not in the record of a superseded file. */
  writtenAt?: string;
}

/** The current record and sidecars, without those of superseded versions. */
export function sidecarFilesOf(
  { sidecarFiles, transcriptKeys, thumbnail }: SidecarStates,
  recordKey: string,
): Record<string, StoredSidecar> {
  const kept: Record<string, StoredSidecar> = {};
  for (const key of [recordKey, ...(transcriptKeys ?? []), ...(thumbnail ? [thumbnail.key] : [])]) {
    if (sidecarFiles[key]) kept[key] = sidecarFiles[key];
  }
  return kept;
}

export function storedSidecarOf({ bytes, etag, checksums }: Stored): StoredSidecar {
  const { crc32, sha256 } = checksums;
  return { bytes, etag: etag ?? null, crc32: crc32!, ...(sha256 && { sha256 }) };
}

export function recordOf(of: {
  companyId: string;
  api: Record<string, unknown>;
  media: Media;
  sidecars: Pick<SidecarStates, 'transcriptState' | 'transcriptKeys' | 'thumbnail'>;
  mirroredAt: number;
}): AssetRecord {
  const { version: _, ...media } = of.media;
  const { transcriptState: state, transcriptKeys, thumbnail } = of.sidecars;
  return {
    version: 1,
    companyId: of.companyId,
    asset: of.api,
    media,
    transcript: { state, keys: transcriptKeys ?? [] },
    thumbnail,
    mirroredAt: new Date(of.mirroredAt).toISOString(),
  };
}

/** Writes the record of the media file, adds it to `sidecars`, and returns its key. */
export async function writeRecord(
  deps: MirrorDeps,
  { asset, lease, signal }: LeasedAsset,
  of: { media: Media; api: Record<string, unknown>; sidecars: SidecarStates; mirroredAt: number },
): Promise<string> {
  const { media, sidecars } = of;
  const writtenAt = new Date(databaseTime(lease)).toISOString();
  const key = sidecarKeys.record(media.key);
  const { [key]: _, ...files } = sidecarFilesOf(sidecars, key);
  const checksums = Object.entries(files).map(([at, { etag: _, ...file }]) => [at, file] as const);
  const record: AssetRecord = {
    ...recordOf({ companyId: asset.companyId, ...of }),
    sidecars: Object.fromEntries(checksums),
    writtenAt,
  };
  const stored = await putJson(deps.storage, key, record, signal);
  sidecars.sidecarFiles[key] = storedSidecarOf(stored);
  note(lease, 'recorded');
  return key;
}

export function putJson(storage: Storage, key: string, content: object, signal: AbortSignal): Promise<Stored> {
  return storage.put(key, `${JSON.stringify(content, null, 2)}\n`, { contentType: 'application/json', signal });
}
