import {
  type DeleteMarkerEntry,
  DeleteObjectCommand,
  HeadObjectCommand,
  ListObjectVersionsCommand,
  type ObjectVersion,
} from '@aws-sdk/client-s3';
import type { Purged, PurgeOptions } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { stoppedBy } from './client.ts';
import { hasNoObject, statusOf } from './errors.ts';
import { listCurrent } from './list.ts';
import { lockOf } from './object-lock.ts';

/** A version of an object, or a delete marker. */
type Entry = DeleteMarkerEntry & Pick<ObjectVersion, 'Size'> & { isMarker: boolean };

/** How long it is remembered whether the bucket has versions. */
const recentMs = 10_000;

/** See `Storage.purge`. */
export async function* purge(bucket: Bucket, at: string, options: PurgeOptions): AsyncGenerator<Purged> {
  try {
    if (options.versionId !== undefined) {
      yield await removeEntry(bucket, { Key: bucket.full(at), VersionId: options.versionId, isMarker: false }, options);
      return;
    }
    for await (const entries of byKey(entriesBelow(bucket, at, options.signal))) {
      const versions = entries.filter(({ isMarker }) => !isMarker);
      if (options.dryRun) {
        for (const entry of versions) yield purgedOf(bucket, entry);
        continue;
      }
      yield* purgeKey(bucket, { entries, versions }, options);
    }
  } catch (error) {
    throw await bucket.failure(error, options.signal);
  }
}

/** Removes delete markers last, and only if nothing remains that they hide. */
async function* purgeKey(
  bucket: Bucket,
  { entries, versions }: { entries: Entry[]; versions: Entry[] },
  options: PurgeOptions,
): AsyncGenerator<Purged> {
  const left: Purged[] = [];
  for (const entry of versions) {
    const purged = await removeEntry(bucket, entry, options);
    if (purged.left) left.push(purged);
    yield purged;
  }
  const [first] = entries;
  const { Bucket } = bucket.at('');
  if (left.length === 0)
    for (const marker of entries.filter((it) => it.isMarker)) await removeEntry(bucket, marker, options);
  // A locked version must not stay the current object.
  else if (!entries.some(({ isMarker, IsLatest }) => isMarker && IsLatest)) {
    await options.fence?.();
    await bucket.client.send(new DeleteObjectCommand({ Bucket, Key: first!.Key }));
  }
}

const purgedOf = (bucket: Bucket, { Key, VersionId, Size = 0 }: Entry): Purged => ({
  key: bucket.own(Key!),
  bytes: Size,
  ...(VersionId !== undefined && { versionId: VersionId }),
});

/** Removes an entry. Returns `left` if a lock or a missing permission prevents the removal: that is no error of the store. */
async function removeEntry(bucket: Bucket, entry: Entry, { fence }: PurgeOptions): Promise<Purged> {
  await fence?.();
  const { Key, VersionId } = entry;
  const at = { Bucket: bucket.options.bucket, Key, VersionId };
  const purged = purgedOf(bucket, entry);
  try {
    await bucket.client.send(new DeleteObjectCommand(at));
    return purged;
  } catch (error) {
    if (hasNoObject(error)) return purged;
    // A locked version is refused with 403, by MinIO with 400.
    if (VersionId === undefined || ![400, 403].includes(statusOf(error) ?? 0)) throw error;
    const { ObjectLockRetainUntilDate } = await bucket.client.send(new HeadObjectCommand(at));
    const lock = ObjectLockRetainUntilDate
      ? undefined
      : await lockOf(bucket, purged.key, VersionId).catch(() => undefined);
    return {
      ...purged,
      left: { versionId: VersionId, lockedUntil: ObjectLockRetainUntilDate ?? lock?.RetainUntilDate },
    };
  }
}

/** Groups entries by key. A listing has those of one key together. */
async function* byKey(entries: AsyncIterable<Entry>): AsyncGenerator<Entry[]> {
  let group: Entry[] = [];
  for await (const entry of entries) {
    if (group.length > 0 && group[0]!.Key !== entry.Key) {
      yield group;
      group = [];
    }
    group.push(entry);
  }
  if (group.length > 0) yield group;
}

/** All versions and delete markers of the object at a key, or below a folder that ends with `/`. */
async function* entriesBelow(bucket: Bucket, at: string, signal: AbortSignal | undefined): AsyncGenerator<Entry> {
  const { Bucket, Key: Prefix } = bucket.at(at);
  const isWanted = (key: string | undefined) => (at.endsWith('/') ? key?.startsWith(Prefix) : key === Prefix);
  // In a bucket that never had versions, neither of the permissions for versions is needed.
  if (await bucket.hasNoVersions(recentMs)) {
    for await (const { Key, Size } of listCurrent(bucket, at, signal)) {
      if (isWanted(Key)) yield { Key, Size, isMarker: false };
    }
    return;
  }
  let KeyMarker: string | undefined;
  let VersionIdMarker: string | undefined;
  do {
    const command = new ListObjectVersionsCommand({ Bucket, Prefix, KeyMarker, VersionIdMarker });
    const page = await bucket.client.send(command, stoppedBy(signal));
    const versions = (page.Versions ?? []).map((entry): Entry => ({ ...entry, isMarker: false }));
    const markers = (page.DeleteMarkers ?? []).map((entry): Entry => ({ ...entry, isMarker: true }));
    // Each list is sorted by key. They are merged, because `byKey` needs the entries of a key together.
    const all = [...versions, ...markers].filter(({ Key }) => isWanted(Key));
    yield* all.sort((a, b) => Buffer.compare(Buffer.from(a.Key!), Buffer.from(b.Key!)));
    [KeyMarker, VersionIdMarker] = page.IsTruncated ? [page.NextKeyMarker, page.NextVersionIdMarker] : [];
  } while (KeyMarker);
}
