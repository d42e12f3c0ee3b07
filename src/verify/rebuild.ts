import type { Readable } from 'node:stream';
import { reasonOf, StorageUnavailable } from '../errors.ts';
import { versionOf } from '../mirror/media.ts';
import { largestRecord, readRecord, recordEnding, type StoredRecord } from '../mirror/read-record.ts';
import { type ApiAsset, storable, withoutLinks } from '../source/schemas.ts';
import { ours, sidecarKeys } from '../storage/keys.ts';
import { measure } from '../storage/meter.ts';
import type { Storage, StoredObject } from '../storage/storage.ts';
import type { Restored, RestoredAsset } from '../store/assets/restore.ts';
import type { Media } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { listedOf } from '../sync/listed-asset.ts';

/** How far it is, and in the end what it was. */
export interface Rebuilding {
  /** Objects that were looked at; `of` them, once they are counted. */
  objects: number;
  of: number | undefined;
  /** Assets that were made again, and what their media files have in all. */
  restored: number;
  bytes: number;
  /** Those that were in the records before. */
  known: number;
  /** Of what was restored: the media file is not as its record says, so it is fetched again. */
  pending: number;
  /** What has the name of a record and is none, or an older one of the same asset. */
  skipped: number;
}

export interface RebuildDeps {
  store: Pick<Store, 'restore' | 'check'>;
  storage: Storage;
  thumbnails: { mirror: boolean };
}

/** Records that are taken in at a time, and read at once. */
const batchSize = 200;
const readAtOnce = 24;
/** So many objects without a record among them are not kept in mind. */
const windowSize = 20_000;

/**
 * Makes the records again from those that lie beside the media in the bucket. Reads, and writes nothing there. May be run
 * at any time and any number of times: what is known stays as it is. Memory does not grow with the bucket.
 */
export async function rebuild(
  deps: RebuildDeps,
  options: {
    /** Something that a person should know: one sentence. */
    tell: (line: string) => void;
    onProgress: (so: Readonly<Rebuilding>) => void;
    signal: AbortSignal;
  },
): Promise<Rebuilding> {
  const { storage } = deps;
  const { tell, signal } = options;
  const so: Rebuilding = { objects: 0, of: undefined, restored: 0, bytes: 0, known: 0, pending: 0, skipped: 0 };
  // How many there are is found out beside the work: a listing is much faster than reading what it names.
  const counted = new AbortController();
  const counting = count(storage, AbortSignal.any([signal, counted.signal])).then(
    (all) => {
      so.of = all;
    },
    () => {},
  );
  const window = createWindow(storage, signal);
  let candidates: string[] = [];

  const skip = (line: string) => {
    so.skipped++;
    tell(line);
  };

  /** One that the database does not take keeps none of the others out. */
  async function restore(assets: RestoredAsset[]): Promise<Map<string, Restored>> {
    try {
      return await deps.store.restore.restore(assets);
    } catch (error) {
      await deps.store.check();
      if (assets.length > 1) {
        const each = new Map<string, Restored>();
        for (const asset of assets) for (const [id, became] of await restore([asset])) each.set(id, became);
        return each;
      }
      skip(`${sidecarKeys.record(assets[0]!.media.key)}: cannot be taken into the records: ${reasonOf(error)}`);
      return new Map();
    }
  }

  async function takeIn(): Promise<void> {
    const found = new Map<string, RestoredAsset>();
    for (const asset of await inLanes(candidates, readAtOnce, (key) =>
      look(deps, { key, window, skip, tell, signal }),
    )) {
      if (!asset) continue;
      const other = found.get(asset.id);
      const [taken, older] = other && other.mirroredAt > asset.mirroredAt ? [other, asset] : [asset, other];
      found.set(asset.id, taken);
      if (older) skip(twice(asset.id, taken.media.key, older.media.key));
    }
    candidates = [];
    const outcomes = await restore([...found.values()]);
    for (const asset of found.values()) {
      const became = outcomes.get(asset.id);
      if (became?.outcome === 'known') so.known++;
      else if (became?.outcome === 'older') skip(twice(asset.id, became.key, asset.media.key));
      else if (became) {
        if (became.outcome === 'newer') skip(twice(asset.id, asset.media.key, became.key));
        else so.restored++;
        so.bytes += asset.bytes ?? 0;
        if (asset.state === 'pending') so.pending++;
        if (asset.reason) tell(`${asset.media.key}: ${asset.reason}`);
      }
    }
    options.onProgress(so);
  }

  try {
    for await (const object of storage.list('', { signal })) {
      if (object.key.startsWith(ours)) continue;
      so.objects++;
      window.add(object);
      if (object.key.endsWith(recordEnding)) candidates.push(object.key);
      if (candidates.length >= batchSize || window.size >= windowSize) {
        await takeIn();
        window.trim();
      }
    }
    window.complete();
    await takeIn();
    so.of = so.objects;
    return so;
  } finally {
    counted.abort();
    await counting;
  }
}

const twice = (id: string, taken: string, older: string) =>
  `asset ${id} has two records; the one that was written last is beside ${taken}, the other beside ${older}`;

async function count(storage: Storage, signal: AbortSignal): Promise<number> {
  let all = 0;
  for await (const { key } of storage.list('', { signal })) if (!key.startsWith(ours)) all++;
  return all;
}

interface Look {
  key: string;
  window: Window;
  skip: (line: string) => void;
  tell: (line: string) => void;
  signal: AbortSignal;
}

/** What the record at a key makes of its asset; undefined: it is none. */
async function look(deps: RebuildDeps, at: Look): Promise<RestoredAsset | undefined> {
  const { key, window, skip, signal } = at;
  try {
    const found = await recordAt(deps.storage, window, key, signal);
    // A media file that only has such a name.
    if (found === 'media') return undefined;
    if ('problem' in found) {
      skip(`${key}: is not a record: ${found.problem}`);
      return undefined;
    }
    return await restoredOf(deps, found.record, at);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof StorageUnavailable) throw error;
    skip(`${key}: could not be looked at: ${reasonOf(error)}`);
    return undefined;
  }
}

/** What has a record of its own is a media file, whatever it contains. */
async function recordAt(
  storage: Storage,
  window: Window,
  key: string,
  signal: AbortSignal,
): Promise<{ record: StoredRecord } | { problem: string } | 'media'> {
  const own = sidecarKeys.record(key);
  if (await window.find(own)) {
    const above = await recordAt(storage, window, own, signal);
    if (above !== 'media' && 'record' in above) return 'media';
  }
  const body = await storage.get(key, { signal });
  if (!body) return { problem: 'it is gone' };
  const text = await textOf(body);
  return text === undefined ? { problem: 'it is too large for one' } : readRecord(key, text);
}

async function textOf(body: Readable): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > largestRecord) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The asset as the record describes it, and as far as what it describes is there. */
async function restoredOf(deps: RebuildDeps, record: StoredRecord, at: Look): Promise<RestoredAsset> {
  const { window, tell } = at;
  const { download: _, ...item } = record.asset;
  const listed = listedOf({ ...item, thumbnailUrl: record.thumbnail?.key } as ApiAsset);
  const { found, problem } = await compare(deps.storage, record, at);
  const { transcript, thumbnail } = record;

  const complete = async (keys: string[]) =>
    (await Promise.all(keys.map((key) => window.find(key)))).every((object) => object !== undefined);
  let transcriptState = transcript.state;
  if (transcriptState === 'mirrored' && !(await complete(transcript.keys))) {
    tell(`${record.media.key}: its transcript is not there, and is looked for again`);
    transcriptState = 'pending';
  }
  const picture = thumbnail && (await window.find(thumbnail.key));
  const pictured = thumbnail !== null && picture?.bytes === thumbnail.bytes;
  if (thumbnail && !pictured) tell(`${record.media.key}: its thumbnail is not there, and is looked for again`);
  // Whether one was still to come is not in the record: one look tells.
  const thumbnailState = pictured ? 'mirrored' : deps.thumbnails.mirror ? 'pending' : 'none';

  // Another version than any: so nothing takes what is there for the right one, and it is cleared away in its time.
  const media: Media = { ...record.media, etag: found ? found.etag : record.media.etag, version: '' };
  if (!problem) media.version = versionOf(item as ApiAsset);
  // Without its key, the record is written again: this one has the ETag of another place.
  const recordKey = problem || media.etag !== record.media.etag ? null : sidecarKeys.record(media.key);
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
    transcriptState,
    transcriptKeys: transcriptState === 'mirrored' ? transcript.keys : null,
    thumbnailState,
    thumbnail: pictured ? thumbnail : null,
  };
}

/**
 * Holds the media file against its record: by length and ETag as listed. Where the ETag is another (parts of another size,
 * another store, one that has none), the bytes decide, read from the bucket.
 */
async function compare(
  storage: Storage,
  record: StoredRecord,
  { window, signal }: Look,
): Promise<{ found?: { etag: string | null }; problem?: string }> {
  const { media, asset } = record;
  const object = await window.find(media.key);
  if (!object) return { problem: 'is not there, and is fetched again' };
  if (object.bytes !== media.bytes) {
    return { problem: `has ${object.bytes} bytes, its record says ${media.bytes}; it is fetched again` };
  }
  if (media.variant === 'original' && typeof asset.size === 'number' && asset.size !== media.bytes) {
    return { problem: `has ${media.bytes} bytes, the asset ${asset.size}; it is fetched again` };
  }
  const etag = object.etag ?? null;
  const same = etag === media.etag || (etag !== null && etag === media.checksums.md5);
  if (same) return { found: { etag } };
  const body = await storage.get(media.key, { signal });
  const sum = body && (await measure(body, signal));
  if (sum && sum.crc32 === media.checksums.crc32) return { found: { etag } };
  return { problem: 'has another content than its record says; it is fetched again' };
}

type Window = ReturnType<typeof createWindow>;

/**
 * What was listed last, by key. An asset's objects lie side by side, so nearly everything that is asked for is here, or
 * known not to be anywhere; the rest is asked for one by one.
 */
function createWindow(storage: Storage, signal: AbortSignal) {
  const objects = new Map<string, StoredObject>();
  let from = Buffer.alloc(0);
  let to: Buffer | undefined;
  let last = '';
  return {
    get size(): number {
      return objects.size;
    },
    add(object: StoredObject): void {
      objects.set(object.key, object);
      last = object.key;
      to = undefined;
    },
    /** The listing has ended: behind the last one there is nothing. */
    complete(): void {
      last = '\u{10FFFF}';
      to = undefined;
    },
    /** Forgets all but the last few. */
    trim(): void {
      for (const key of objects.keys()) {
        if (objects.size <= 1000) {
          from = Buffer.from(key);
          break;
        }
        objects.delete(key);
      }
    },
    async find(key: string): Promise<StoredObject | undefined> {
      const here = objects.get(key);
      if (here) return here;
      to ??= Buffer.from(last);
      const place = Buffer.from(key);
      if (Buffer.compare(place, from) >= 0 && Buffer.compare(place, to) <= 0) return undefined;
      return storage.head(key, { signal });
    },
  };
}

/** Does something with each, so many at once, and gives what came of it in the same order. The first error ends it. */
async function inLanes<T, R>(items: T[], lanes: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const next = items.entries();
  const lane = async () => {
    for (const [at, item] of next) results[at] = await work(item);
  };
  await Promise.all(Array.from({ length: Math.min(lanes, items.length) }, lane));
  return results;
}
