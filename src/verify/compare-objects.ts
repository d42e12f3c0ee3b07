import { reasonOf, StorageUnavailable } from '../errors.ts';
import { storable } from '../source/schemas.ts';
import { idSegment, isDigested } from '../storage/keys.ts';
import { measure } from '../storage/meter.ts';
import type { Storage, StoredObject } from '../storage/storage.ts';
import type { ObjectKind, Remedy, VerificationCounts, VerificationLine } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { type Expected, expectedOf, isSettled } from './expected-objects.ts';

interface InspectDeps {
  store: Store;
  storage: Storage;
}

/** What the records and the bucket have at a key. */
export interface Pair {
  key: string;
  left?: Expected;
  /** As it was listed, or to be asked for. */
  right?: StoredObject | 'unlisted';
}

/** What is to be said of an object; undefined: nothing, for it is on its way. */
export type Finding = (VerificationLine & { skipped?: boolean }) | undefined;

/** Objects that are read at the same time. */
const readers = 4;

export interface Inspection {
  deep?: boolean | undefined;
  /** Only one connection is looked at: of other objects nothing can be said. */
  one: boolean;
  counts: VerificationCounts;
  /** Assets whose media was read and is right. */
  seen: { id: string; lease: number }[];
  /** Objects of which the store gives another ETag for the same content. */
  copied: { id: string; lease: number; key: string; etag: string }[];
  signal: AbortSignal;
}

/** What is to be said of each, in the same order; a few at a time. */
export async function inspect(deps: InspectDeps, batch: Pair[], options: Inspection): Promise<Finding[]> {
  const strangers = options.one ? [] : batch.filter(({ left }) => !left).map(({ key }) => key);
  const owned = await ownedAmong(deps.store, strangers);
  const findings: Finding[] = [];
  let next = 0;
  const work = async () => {
    while (next < batch.length) {
      const index = next++;
      const { key, left, right } = batch[index]!;
      if (left) findings[index] = await judge(deps, left, right, options);
      else if (!options.one && !owned.has(key)) {
        findings[index] = { ...told('+', 'not ours: no record names it'), key: storable(key) };
      }
    }
  };
  await Promise.all(Array.from({ length: readers }, work));
  // Of what belongs to somebody else, or was named by a record a moment later, nothing is said, and nothing is counted.
  return batch.flatMap(({ left }, index) => (left || findings[index] ? [findings[index]] : []));
}

/**
 * Of an object that should be there. A difference is told only when the row, read again behind it, is at rest and still the
 * same: else another worker was just there.
 */
async function judge(
  deps: InspectDeps,
  first: Expected,
  listed: StoredObject | 'unlisted' | undefined,
  options: Inspection,
): Promise<Finding> {
  const { store } = deps;
  let expected = first;
  let object = listed;
  for (let tries = 0; tries < 3; tries++) {
    const finding = await compare(deps, expected, object, options);
    if (finding.mark === '=') {
      if (options.deep && expected.kind === 'media') {
        options.seen.push({ id: expected.asset.id, lease: expected.asset.lease });
      }
      return finding;
    }
    const row = await store.contents.get(expected.asset.id);
    const again = row && expectedOf(row).find(({ key }) => key === expected.key);
    if (!row || !again || row.isMoving) return undefined;
    const { lease, revision } = expected.asset;
    if (tries > 0 && row.lease === lease && row.revision === revision) return finding;
    expected = again;
    object = 'unlisted';
  }
  return undefined;
}

async function compare(
  { storage }: InspectDeps,
  expected: Expected,
  listed: StoredObject | 'unlisted' | undefined,
  { deep, counts, copied, signal }: Inspection,
): Promise<VerificationLine> {
  const { key, asset, kind, bytes, etag, crc32 } = expected;
  const line = (
    mark: VerificationLine['mark'],
    text: string | null,
    remedy: Remedy | null = null,
  ): VerificationLine => ({
    mark,
    key,
    assetId: asset.id,
    kind,
    remedy: asset.state === 'gone' ? null : remedy,
    text: text && asset.state === 'gone' ? `${text}; it is no longer in the library, so it cannot be had again` : text,
    difference: mark !== '=',
  });
  const lost: Remedy = kind === 'media' ? 'check' : 'write';
  try {
    const object = listed === 'unlisted' ? await storage.head(key, { signal }) : listed;
    if (!object) return line('-', `missing in the bucket: ${names[kind]}`, lost);
    if (bytes !== undefined && object.bytes !== bytes) {
      return line('*', `${object.bytes} bytes, ${bytes} were stored: ${names[kind]}`, lost);
    }
    // A bucket that was copied has other ETags: then the content tells.
    const touched = etag !== undefined && object.etag !== undefined && etag !== object.etag;
    if (!deep && !touched) return line('=', null);
    const body = await storage.get(key, { signal });
    if (!body) return line('-', `missing in the bucket: ${names[kind]}`, lost);
    const found = await measure(body, signal);
    counts.bytesRead += object.bytes;
    if (crc32 === undefined || found.crc32 === crc32) {
      if (touched) copied.push({ id: asset.id, lease: asset.lease, key, etag: object.etag! });
      return line('=', null);
    }
    return line(
      '*',
      `CRC-32 ${found.crc32}, ${crc32} was stored: ${names[kind]}`,
      kind === 'media' ? 'fetch' : 'write',
    );
  } catch (error) {
    if (signal.aborted || error instanceof StorageUnavailable) throw error;
    return line('!', `cannot be read: ${reasonOf(error)}`);
  }
}

const names: Record<ObjectKind, string> = {
  media: 'the media',
  record: 'the record',
  transcript: 'the transcript',
  thumbnail: 'the thumbnail',
};

/**
 * Which of these keys belong to an asset all the same: named by its row in the meantime, or of a file that is just being
 * stored or cleared away. The segment of an asset's id is in every key of its own; a digest in it hides the id, so what
 * the rows say of media and of work in hand is asked for, too.
 */
async function ownedAmong({ contents }: Store, keys: string[]): Promise<Set<string>> {
  if (keys.length === 0) return new Set();
  const named = await contents.some([...new Set(keys.flatMap((key) => key.split('/').flatMap(idsFrom)))]);
  const stored = await contents.atKeys([...new Set(keys.flatMap(mediaKeysFrom))]);
  const moving = keys.some((key) => key.split('/').some(isDigested)) ? await contents.queued() : [];
  const byId = new Map([...named, ...moving].map((row) => [row.id, row]));
  const bySegment = new Map(moving.map((row) => [idSegment(row.id), row]));
  const byMedia = new Map(stored.map((row) => [row.media!.key, row]));
  const rowsOf = (key: string) => [
    ...key.split('/').flatMap((segment) => [...idsFrom(segment).map((id) => byId.get(id)), bySegment.get(segment)]),
    ...mediaKeysFrom(key).map((mediaKey) => byMedia.get(mediaKey)),
  ];
  return new Set(keys.filter((key) => rowsOf(key).some((row) => row && mayHave(row, key))));
}

/** The media that the object at a key may lie beside, or be: all that is beside it has its key, a dot, and more. */
function mediaKeysFrom(key: string): string[] {
  return [key, ...[...key.matchAll(/\./g)].map(({ index }) => key.slice(0, index))];
}

function idsFrom(segment: string): string[] {
  try {
    return [segment, decodeURIComponent(segment)].map(storable);
  } catch {
    return [storable(segment)];
  }
}

function mayHave(asset: AssetContents, key: string): boolean | null {
  const { media, superseded } = asset;
  const of = media && (key === media.key || key.startsWith(`${media.key}.`));
  if (asset.isMoving || superseded.includes(key)) return true;
  if (isSettled(asset)) {
    return (of && asset.nextAt !== null) || expectedOf(asset).some((object) => object.key === key);
  }
  // Of one that is to be tried again, its next lease clears away what an earlier one may have left.
  return of || asset.nextAt !== null;
}

export const told = (mark: VerificationLine['mark'], text: string): VerificationLine => ({
  mark,
  key: null,
  assetId: null,
  kind: null,
  remedy: null,
  text,
  difference: mark !== '=',
});
