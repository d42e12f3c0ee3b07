import { Archived, reasonOf, StorageUnavailable } from '../../floor/errors.ts';
import type { Reason } from '../../floor/reason-codes.ts';
import { shortText } from '../../floor/short-text.ts';
import { largestRecord, readRecord, readVersionRecord, type StoredRecord } from '../../mirror/read-record.ts';
import { type ApiAsset, storable, versionOf, withoutLinks } from '../../source/schemas.ts';
import { sidecarKeys } from '../../storage/keys.ts';
import { crc32At } from '../../storage/meter.ts';
import type { Storage } from '../../storage/storage.ts';
import { readOne } from '../../storage/throw-if-unavailable.ts';
import type { RebuiltAsset } from '../../store/assets/rebuild.ts';
import type { AssetVersion, Media, StoredSidecar } from '../../store/database/schema.ts';
import { listedOf } from '../../sync/listed-asset.ts';
import type { ListedWindow } from './listed-window.ts';

export interface ReadDeps {
  storage: Storage;
  thumbnails: { mirror: boolean };
  window: ListedWindow;
  /** Called with one sentence for each record that cannot be used as it is. */
  onProblem: (line: string) => void;
  /** Reports and counts a record that is not used. */
  skip: (line: string) => void;
  signal: AbortSignal;
}

type Reading = Pick<ReadDeps, 'storage' | 'skip' | 'signal'>;

/** The asset that the record at a key describes; undefined: the object is not a usable record. */
export async function readAsset(deps: ReadDeps, key: string): Promise<RebuiltAsset | undefined> {
  const found = await readOrSkip(deps, key, () => recordAt(deps, key));
  if (found === undefined || found === 'media') return undefined;
  if ('record' in found) return await readOrSkip(deps, key, () => rebuiltFrom(deps, found.record));
  deps.skip(`${key}: is not a record: ${found.problem}`);
  return undefined;
}

/** The result of `read`, which may run twice. Undefined, and skipped: the object at the key cannot be read. @throws StorageUnavailable */
async function readOrSkip<T>({ storage, skip, signal }: Reading, key: string, read: () => Promise<T>) {
  try {
    return await readOne(storage, read);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof StorageUnavailable) throw error;
    skip(`${key}: could not be read: ${reasonOf(error)}`);
    return undefined;
  }
}

/** `media`: a file that only has the name of a record. It has a record of its own. */
async function recordAt(
  deps: ReadDeps,
  key: string,
): Promise<{ record: StoredRecord } | { problem: string } | 'media'> {
  const own = sidecarKeys.record(key);
  if (await deps.window.find(own)) {
    const above = await recordAt(deps, own);
    if (above !== 'media' && 'record' in above) return 'media';
  }
  const body = await deps.storage.get(key, { signal: deps.signal });
  if (!body) return { problem: 'it is gone' };
  const text = await shortText(body, largestRecord);
  return text === undefined ? { problem: 'it is too large for one' } : readRecord(key, text);
}

/** The version whose record is at a key; undefined: the object is not a usable one. */
export async function readVersion(deps: Reading, key: string): Promise<AssetVersion | undefined> {
  const found = await readOrSkip(deps, key, async () => {
    const body = await deps.storage.get(key, { signal: deps.signal });
    const text = body && (await shortText(body, largestRecord));
    return text === undefined ? { problem: 'it is gone or too large' } : readVersionRecord(key, text);
  });
  if (found === undefined) return undefined;
  if ('version' in found) return found.version;
  deps.skip(`${key}: is not the record of a version: ${found.problem}`);
  return undefined;
}

/** The asset as its record describes it, except for what is missing or different in the bucket. */
async function rebuiltFrom(deps: ReadDeps, record: StoredRecord): Promise<RebuiltAsset> {
  const { download: _, ...item } = record.asset;
  const listed = listedOf({ ...item, thumbnailUrl: record.thumbnail?.key } as ApiAsset);
  const { etag, problem } = await compareMedia(deps, record);
  const sidecars = await findSidecars(deps, record);

  // Without a version, the file is fetched again.
  const media: Media = { ...record.media, etag: etag === undefined ? record.media.etag : etag, version: '' };
  if (!problem) media.version = versionOf(item as ApiAsset);
  // null: the record is written again, because this one has the ETag of another bucket.
  const recordKey = problem || media.etag !== record.media.etag ? null : sidecarKeys.record(media.key);
  const { transcriptState, thumbnailState } = sidecars;
  return {
    ...listed,
    companyId: record.companyId,
    detail: storable(withoutLinks(record.asset as ApiAsset)),
    state: problem ? 'pending' : 'mirrored',
    reason: problem ?? null,
    due: problem !== undefined || recordKey === null || transcriptState === 'pending' || thumbnailState === 'pending',
    media,
    bytes: problem ? null : media.bytes,
    recordKey,
    mirroredAt: record.mirroredAt,
    ...sidecars,
  };
}

async function findSidecars(
  { window, onProblem, thumbnails }: ReadDeps,
  { media, transcript, thumbnail, sidecars = {} }: StoredRecord,
) {
  const sidecarFiles: Record<string, StoredSidecar> = {};
  const isThere = async (key: string, length = sidecars[key]?.bytes) => {
    const found = await window.find(key);
    const isSame = found !== undefined && (length === undefined || found.bytes === length);
    // The ETag may be that of another bucket.
    if (isSame && sidecars[key]) sidecarFiles[key] = { ...sidecars[key], etag: null };
    return isSame;
  };
  const there = await Promise.all(transcript.keys.map((key) => isThere(key)));
  const transcriptKeys = transcript.keys.filter((_, index) => there[index]);
  const isWhole = transcriptKeys.length === transcript.keys.length;
  if (!isWhole) onProblem(`${media.key}: its transcript is missing or has another length, and is fetched again`);
  const hasThumbnail = thumbnail !== null && (await isThere(thumbnail.key, thumbnail.bytes));
  if (thumbnail && !hasThumbnail) onProblem(`${media.key}: its thumbnail is missing, and is fetched again`);
  return {
    transcriptState: isWhole ? transcript.state : ('pending' as const),
    transcriptKeys: transcriptKeys.length > 0 ? transcriptKeys : null,
    // The record does not say whether a thumbnail was still expected: a follow-up check finds out.
    thumbnailState: hasThumbnail ? ('mirrored' as const) : thumbnails.mirror ? ('pending' as const) : ('none' as const),
    thumbnail: hasThumbnail ? thumbnail : null,
    sidecarFiles,
  };
}

/**
 * Compares the media file with its record: by length and listed ETag. If the ETag differs (parts of another size, another
 * bucket, or none), the content decides. Returns the ETag of a correct file.
 */
async function compareMedia(
  { storage, window, signal }: ReadDeps,
  { media, asset }: StoredRecord,
): Promise<{ etag?: string | null; problem?: Reason }> {
  const object = await window.find(media.key);
  if (!object) return { problem: { code: 'missing_object' } };
  if (object.bytes !== media.bytes) {
    return { problem: { code: 'wrong_length', of: 'object', expected: media.bytes, got: object.bytes } };
  }
  if (media.variant === 'original' && typeof asset.size === 'number' && asset.size !== media.bytes) {
    return { problem: { code: 'wrong_length', of: 'record', expected: asset.size, got: media.bytes } };
  }
  const etag = object.etag ?? null;
  if (etag === media.etag || (etag !== null && etag === media.checksums.md5)) return { etag };
  try {
    if ((await crc32At(storage, media.key, { signal })) === media.checksums.crc32) return { etag };
  } catch (error) {
    if (error instanceof Archived) return { etag };
    throw error;
  }
  return { problem: { code: 'wrong_content', of: 'object', got: null } };
}
