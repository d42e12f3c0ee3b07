import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { newHttpLine } from '../../support/http-line.ts';
import { newBucket, newDirectory, openBucket } from '../grounds.ts';
import { locking, startLocking } from '../locking.ts';

const purged = async (storage: Storage, at: string, options = {}) =>
  (await Array.fromAsync(storage.purge(at, options))).map(({ key, bytes }) => `${key} ${bytes}`).sort();
const keys = async (storage: Storage) => (await Array.fromAsync(storage.list(''))).map(({ key }) => key);

const plain = [
  { name: 'a directory', open: newDirectory },
  ...(inject('s3') ? [{ name: inject('s3')!.name, open: () => newBucket(inject('s3')!) }] : []),
  ...(inject('s3modern') ? [{ name: inject('s3modern')!.name, open: () => newBucket(inject('s3modern')!) }] : []),
];

test.each(plain)('purge removes a folder, or one object, and nothing else ($name)', async ({ open }) => {
  const { storage, clear } = await open();
  for (const key of ['c/a/film.mp4', 'c/a/film.mp4.vtt', 'c/a/old/film.mp4', 'c/ab/film.mp4', 'c/b']) {
    await storage.put(key, key);
  }
  expect(await purged(storage, 'c/a/', { dryRun: true })).toHaveLength(3);
  expect(await keys(storage)).toHaveLength(5);
  expect(await purged(storage, 'c/a/film.mp4')).toEqual(['c/a/film.mp4 12']);
  expect(await purged(storage, 'c/a/')).toEqual(['c/a/film.mp4.vtt 16', 'c/a/old/film.mp4 16']);
  expect(await purged(storage, 'c/a/')).toEqual([]);
  expect(await keys(storage)).toEqual(['c/ab/film.mp4', 'c/b']);
  await clear();
});

test.skipIf(!inject('s3'))('purge of a bucket that never had versions needs no permission for versions', async () => {
  const line = await newHttpLine(inject('s3')!.endpoint);
  const ground = await newBucket(inject('s3')!);
  const open = () => openBucket({ ...inject('s3')!, endpoint: line.endpoint }, { bucket: ground.bucket });
  const denied = (asks: RegExp) => ({
    on: ({ url }: { url: string }) => asks.test(url),
    times: Number.POSITIVE_INFINITY,
    answer: { status: 403, body: '<Error><Code>AccessDenied</Code></Error>' },
  });
  const storage = await open();
  await storage.put('c/a/film', 'film');
  line.set(denied(/[?&]versions|versionId=/));
  expect(await purged(storage, 'c/a/')).toEqual(['c/a/film 4']);
  expect(await storage.head('c/a/film')).toBeUndefined();
  // If the store does not say, older versions could stay.
  const unsure = await open();
  line.set(denied(/[?&](versions|versioning)|versionId=/));
  await expect(purged(unsure, 'c/a/')).rejects.toThrow(/denies access/);
  await storage.close();
  await unsure.close();
  await ground.clear();
  await line.close();
});

describe.each(locking.filter(({ there }) => there))('purge of a bucket with locked versions on $name', ({ start }) => {
  let place: Awaited<ReturnType<typeof startLocking>>;
  beforeAll(async () => {
    place = await startLocking(start);
  });
  afterAll(() => place?.stop());

  test('all versions and delete markers are removed', async () => {
    const bucket = await place.newBucket();
    const storage = await openBucket(place.server, { bucket, prefix: 'p' });
    await storage.put('c/a/film', '1');
    await storage.put('c/a/film', '22');
    await storage.put('c/a/gone', '333');
    await storage.remove('c/a/gone');
    await storage.put('c/ab/film', '4444');
    expect(await purged(storage, 'c/a/', { dryRun: true })).toEqual(['c/a/film 1', 'c/a/film 2', 'c/a/gone 3']);
    expect(await purged(storage, 'c/a/')).toEqual(['c/a/film 1', 'c/a/film 2', 'c/a/gone 3']);
    const left = (await place.versions(bucket)).map(({ key }) => key).filter((key) => !key.includes('_mirror/'));
    expect(left).toEqual(['p/c/ab/film']);
    await storage.close();
  });

  test('a locked version stays and is hidden, until its lock has ended', async () => {
    const bucket = await place.newBucket();
    const ms = 60_000;
    const storage = await openBucket(place.server, { bucket, objectLock: { mode: 'GOVERNANCE', ms } });
    await storage.put('c/a/film', 'film', { media: true });
    await storage.put('c/a/film.asset.json', '{}');
    const found = await Array.fromAsync(storage.purge('c/a/'));
    const [locked] = found.filter(({ left }) => left);
    expect(found.map(({ key, left }) => [key, left !== undefined])).toEqual([
      ['c/a/film', true],
      ['c/a/film.asset.json', false],
    ]);
    const lasts = locked!.left!.lockedUntil!.getTime() - Date.now();
    expect(lasts).toBeGreaterThan(ms / 2);
    expect(lasts).toBeLessThan(ms * 1.1);
    expect(await storage.head('c/a/film')).toBeUndefined();
    expect(await keys(storage).then((all) => all.filter((key) => key.startsWith('c/')))).toEqual([]);
    // Once more, which changes nothing.
    expect(await Array.fromAsync(storage.purge('c/a/'))).toMatchObject([{ key: 'c/a/film', left: {} }]);
    const before = (await place.versions(bucket)).filter(({ key }) => key === 'c/a/film');
    expect(before.filter(({ isMarker }) => isMarker)).toHaveLength(1);
    await place.raw.send(
      new DeleteObjectCommand({
        Bucket: bucket,
        Key: 'c/a/film',
        VersionId: locked!.versionId!,
        BypassGovernanceRetention: true,
      }),
    );
    await Array.fromAsync(storage.purge('c/a/film'));
    expect((await place.versions(bucket)).filter(({ key }) => key === 'c/a/film')).toEqual([]);
    await storage.close();
  });
});
