import { describe, expect, test } from 'vitest';
import { partLength, type Storage } from '../../../src/storage/storage.ts';
import { bytesOf, collected, MiB, streaming } from '../bodies.ts';

const media = { media: true } as const;
/** From 0.4 to 1.4: some time has passed, and a store may round up. */
const lasting = { share: expect.closeTo(0.9, 0) };

/** The guarantees of S3_OBJECT_LOCK, for a store that was opened with it. */
export function lockedObjects(open: () => Storage): void {
  describe('a locked object', () => {
    lockedWrites(open);
    lockedVersions(open);
    extendedLocks(open);
  });
}

function lockedWrites(open: () => Storage): void {
  test('media is locked, written at once or in parts, and no other object', async () => {
    const storage = open();
    await storage.put('locks/written/bytes', 'film', media);
    await storage.put('locks/written/record', '{}');
    await storage.put('locks/written/stream', streaming(bytesOf(4)), { ...media, bytes: 4 });
    const upload = await storage.uploads.begin('locks/written/upload', { ...media, bytes: 6 * MiB });
    const parts = [1, 2].map((number) =>
      storage.uploads.put(upload, number, streaming(bytesOf(partLength(upload, number)))),
    );
    await storage.uploads.complete(upload, await Promise.all(parts));
    const found = (await purgeAndReportLocks(storage, 'locks/written/')).toSorted((a, b) => a.key.localeCompare(b.key));
    expect(found).toEqual([
      { key: 'locks/written/bytes', bytes: 4, ...lasting },
      { key: 'locks/written/record', bytes: 2, share: undefined },
      { key: 'locks/written/stream', bytes: 4, ...lasting },
      { key: 'locks/written/upload', bytes: 6 * MiB, ...lasting },
    ]);
  });
}

function lockedVersions(open: () => Storage): void {
  test('a locked object that is purged stays as a version, and is hidden', async () => {
    const storage = open();
    await storage.put('locks/purged/film', 'film', media);
    const kept = (await storage.keep('locks/purged/film', 'locks/copy'))!;
    expect(await purgeAndReportLocks(storage, 'locks/purged/')).toEqual([
      { key: 'locks/purged/film', bytes: 4, ...lasting },
    ]);
    const again = await Array.fromAsync(storage.purge('locks/purged/'));
    expect(again).toMatchObject([{ key: 'locks/purged/film', bytes: 4, left: {} }]);
    expect(await storage.head('locks/purged/film')).toBeUndefined();
    expect(await Array.fromAsync(storage.list('locks/purged/'))).toEqual([]);
    expect(await storage.head(kept.key, kept)).toMatchObject({ bytes: 4 });
  });

  test('a locked object can be replaced and removed, and its versions stay', async () => {
    const storage = open();
    await storage.put('locks/replaced/film', 'first', media);
    const kept = (await storage.keep('locks/replaced/film', 'locks/copy'))!;
    await storage.put('locks/replaced/film', 'second', media);
    await storage.remove('locks/replaced/film');
    expect(await storage.head('locks/replaced/film')).toBeUndefined();
    await expect(storage.remove(kept.key, kept)).rejects.toThrow();
    expect((await collected((await storage.get(kept.key, kept))!)).toString()).toBe('first');
    const found = await Array.fromAsync(storage.purge('locks/replaced/', { dryRun: true }));
    expect(found.map(({ bytes }) => bytes).sort()).toEqual([5, 6]);
  });
}

function extendedLocks(open: () => Storage): void {
  test('an object, or a version of it, is locked from now on, but not for longer than asked', async () => {
    const storage = open();
    const { ms, extend } = storage.lock!;
    for (const text of ['first', 'second']) await storage.put('locks/extended/film', text);
    const kept = (await storage.keep('locks/extended/film', 'locks/copy'))!;
    await storage.put('locks/extended/film', 'the third');
    const shareOf = (until: Date | undefined) => (until!.getTime() - Date.now()) / ms;
    const soon = new Date(Math.ceil((Date.now() + ms / 4) / 1000) * 1000);
    expect(await extend(kept.key, { ...kept, atMost: soon })).toEqual(soon);
    expect(await extend(kept.key, { ...kept, atMost: soon })).toEqual(soon);
    // It is less than half of the time, so it can become longer.
    expect(shareOf(await extend(kept.key, kept))).toBeCloseTo(0.9, 0);
    expect(shareOf(await extend('locks/extended/film'))).toBeCloseTo(0.9, 0);
    expect(shareOf(await extend(kept.key, { ...kept, atMost: soon }))).toBeCloseTo(0.9, 0);
    expect(await extend('locks/extended/nothing')).toBeUndefined();
    const found = (await purgeAndReportLocks(storage, 'locks/extended/')).toSorted((a, b) => a.bytes - b.bytes);
    expect(found).toMatchObject([
      { bytes: 5, share: undefined },
      { bytes: 6, ...lasting },
      { bytes: 9, ...lasting },
    ]);
  });
}

/** Purges a folder. Returns for each object how long it is still locked, as a share of the time of the setting; undefined: it was not. */
async function purgeAndReportLocks(storage: Storage, at: string) {
  const purged = await Array.fromAsync(storage.purge(at));
  return purged.map(({ key, bytes, left }) => ({
    ...{ key, bytes },
    share: left && ((left.lockedUntil?.getTime() ?? 0) - Date.now()) / storage.lock!.ms,
  }));
}
