import { sidecarKeys } from '../storage/keys.ts';
import type { ObjectKind } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';

/** An object that should be in the bucket, as the records describe it. */
export interface Expected {
  key: string;
  asset: AssetContents;
  kind: ObjectKind;
  bytes: number | undefined;
  etag: string | undefined;
  /** Lower-case hex. */
  crc32: string | undefined;
  /** The content hash; undefined: not known yet. */
  sha256: string | undefined;
}

/** The order in which buckets list: by the UTF-8 bytes of the keys. */
export function compareKeys(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Whether the row describes the objects in the bucket: not before the first copy, nor while a file is being superseded. */
export function isSettled(asset: AssetContents): boolean {
  return (asset.state === 'mirrored' || asset.state === 'gone') && asset.media !== null;
}

/** The objects of a settled asset, in the order of their keys. */
export const expectedOf = (asset: AssetContents): Expected[] => (isSettled(asset) ? storedOf(asset) : []);

/** The objects that the row describes, in the order of their keys: also those of a file that waits to be replaced. */
export function storedOf(asset: AssetContents): Expected[] {
  const { media, transcriptKeys, thumbnail } = asset;
  if (!media) return [];
  // A lost record that could not be written again is still expected.
  const recordKey = asset.recordKey ?? (asset.state === 'mirrored' ? sidecarKeys.record(media.key) : null);
  const other = (key: string, kind: ObjectKind, length?: number): Expected => {
    const kept = asset.sidecarFiles[key];
    const { bytes = length, etag, crc32, sha256 } = kept ?? {};
    return { key, asset, kind, bytes, etag: etag ?? undefined, crc32, sha256 };
  };
  const objects = [
    {
      key: media.key,
      asset,
      kind: 'media' as const,
      bytes: media.bytes,
      etag: media.etag ?? undefined,
      crc32: media.checksums.crc32,
      sha256: media.checksums.sha256,
    },
    ...(recordKey ? [other(recordKey, 'record')] : []),
    ...(transcriptKeys ?? []).map((key) => other(key, 'transcript')),
    ...(thumbnail ? [other(thumbnail.key, 'thumbnail', thumbnail.bytes)] : []),
  ];
  return objects.sort((a, b) => compareKeys(a.key, b.key));
}

/**
 * All expected objects after `after`, in the order of their keys. A sidecar's key begins with its media's key, so reading
 * the assets page by page by media key needs little memory: an asset's objects never come before its media.
 */
export async function* expectedObjects(
  store: Store,
  options: {
    after: string;
    connectionId?: string | undefined;
    pageSize: number;
    /** Assets that have settled since are skipped. */
    settledBefore?: Date | undefined;
  },
): AsyncGenerator<Expected> {
  const { after, connectionId, pageSize, settledBefore } = options;
  const ahead: Expected[] = [];
  const add = (asset: AssetContents) => {
    if (settledBefore && asset.settledAt && asset.settledAt >= settledBefore) return;
    for (const object of expectedOf(asset)) {
      if (compareKeys(object.key, after) <= 0) continue;
      const place = ahead.findIndex((other) => compareKeys(object.key, other.key) < 0);
      ahead.splice(place < 0 ? ahead.length : place, 0, object);
    }
  };
  // Sidecars after `after` may belong to a media file whose key is before it.
  for (const asset of await store.contents.atKeys(beginningsOf(after), connectionId)) add(asset);
  for (let last = after; ; ) {
    const page = await store.contents.byKey({ after: last, limit: pageSize, connectionId });
    for (const asset of page) {
      last = asset.media!.key;
      while (ahead[0] && compareKeys(ahead[0].key, last) < 0) yield ahead.shift()!;
      add(asset);
    }
    if (page.length < pageSize) break;
  }
  yield* ahead;
}

function beginningsOf(key: string): string[] {
  const characters = [...key];
  return characters.map((_, index) => characters.slice(0, index + 1).join(''));
}

/** Merges expected and listed objects, both sorted by key: those with the same key are one pair. */
export async function* sideBySide<E extends { key: string }, L extends { key: string }>(
  expected: AsyncIterable<E>,
  listed: AsyncIterable<L>,
): AsyncGenerator<{ key: string; expected?: E; listed?: L }> {
  const left = expected[Symbol.asyncIterator]();
  const right = listed[Symbol.asyncIterator]();
  try {
    let [l, r] = await Promise.all([left.next(), right.next()]);
    while (!l.done || !r.done) {
      const order = l.done ? 1 : r.done ? -1 : compareKeys(l.value.key, r.value.key);
      if (order < 0) {
        yield { key: l.value!.key, expected: l.value as E };
        l = await left.next();
      } else if (order > 0) {
        yield { key: r.value!.key, listed: r.value as L };
        r = await right.next();
      } else {
        yield { key: l.value!.key, expected: l.value as E, listed: r.value as L };
        [l, r] = await Promise.all([left.next(), right.next()]);
      }
    }
  } finally {
    await Promise.allSettled([left.return?.(), right.return?.()]);
  }
}
