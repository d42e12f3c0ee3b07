import { beside } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type { Media, TranscriptState } from '../store/schema.ts';

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

/** Writes the record; returns its key. */
export async function writeRecord(storage: Storage, record: AssetRecord, signal: AbortSignal): Promise<string> {
  const key = beside.record(record.media.key);
  await storage.put(key, `${JSON.stringify(record, null, 2)}\n`, { contentType: 'application/json', signal });
  return key;
}
