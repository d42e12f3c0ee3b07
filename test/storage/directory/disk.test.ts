import { execFile } from 'node:child_process';
import { mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { bytesOf, collected, KiB, MiB, streaming } from '../bodies.ts';
import { canMount } from '../grounds.ts';
import { expectAvailable, type Folder, newFolder } from './folder.ts';

const run = promisify(execFile);

describe('a directory', () => {
  let folder: Folder;
  let path: string;
  beforeEach(async () => {
    folder = await newFolder();
    ({ path } = folder);
  });
  afterEach(() => folder.clear());

  if (!canMount) test.skip('full and read-only disks are not tested: this process may not mount any');

  describe.runIf(canMount)('a disk of its own', () => {
    const mountDisk = async (size = 4) => {
      await mkdir(path);
      await run('mount', ['-t', 'tmpfs', '-o', `size=${size}m`, 'tmpfs', path]);
      folder.mounted = true;
    };
    const errorOf = (put: Promise<unknown>) => put.then(() => undefined).catch((reason) => reason);

    test('a file that does not fit on a disk is refused before its body is read, and smaller ones still fit', async () => {
      await mountDisk(20);
      const storage = await openDirectory({ path });
      await storage.put('fill', bytesOf(10 * MiB));
      let read = false;
      const body = new Readable({
        read() {
          read = true;
        },
      });
      const error = await errorOf(storage.put('a/large', body, { bytes: 12 * MiB }));
      expect(error).toBeInstanceOf(StorageUnavailable);
      expect(error).toMatchObject({
        scope: 'object',
        message: `${path}: not enough space for a/large: it needs 12 MiB, and 9 MiB are free`,
      });
      expect(read).toBe(false);
      expect(body.destroyed).toBe(true);
      await storage.put('small', streaming(bytesOf(8 * MiB)), { bytes: 8 * MiB });
      await storage.check();
    });

    test('free space of a disk is not promised twice', async () => {
      await mountDisk(20);
      const storage = await openDirectory({ path });
      const go = Promise.withResolvers<void>();
      const halfway = Promise.withResolvers<void>();
      const bytes = bytesOf(12 * MiB);
      const first = storage.put(
        'first',
        streaming(bytes.subarray(0, MiB), async () => {
          halfway.resolve();
          await go.promise;
        }).on('error', () => {}),
        { bytes: bytes.length },
      );
      await halfway.promise;
      expect(await errorOf(storage.put('second', streaming(bytes), { bytes: bytes.length }))).toMatchObject({
        scope: 'object',
      });
      go.resolve();
      await expect(first).rejects.toThrow(/ended at byte/);
      await storage.put('second', streaming(bytes), { bytes: bytes.length });
    });

    test('a file of unknown length that fills the disk fails alone, and smaller ones still fit', async () => {
      await mountDisk(20);
      const storage = await openDirectory({ path });
      expect(await errorOf(storage.put('endless', streaming(bytesOf(30 * MiB))))).toMatchObject({
        name: 'StorageUnavailable',
        scope: 'object',
        message: `${path}: the disk is full; it is too full for endless, but smaller objects still fit`,
      });
      await storage.check();
    });

    test('abandoned drafts are removed when their space is needed', async () => {
      await mountDisk(20);
      const storage = await openDirectory({ path });
      const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
      const abandon = async () => {
        const draft = join(path, '.asset-mirror-tmp', 'abandoned');
        await writeFile(draft, bytesOf(15 * MiB));
        await utimes(draft, old, old);
      };
      await abandon();
      await storage.put('known', streaming(bytesOf(10 * MiB)), { bytes: 10 * MiB });
      await storage.remove('known');
      await abandon();
      await expect(storage.put('unknown', streaming(bytesOf(10 * MiB)))).rejects.toThrow(StorageUnavailable);
      await storage.put('unknown', streaming(bytesOf(10 * MiB)));
    });

    test('a full disk is unavailable until it has free space', async () => {
      await mountDisk();
      const storage = await openDirectory({ path });
      await storage.put('kept', 'x');
      await storage.put('fill', bytesOf(3 * MiB));
      const large = streaming(bytesOf(2 * MiB));
      await expect(storage.put('large', large, { bytes: 2 * MiB })).rejects.toThrow(StorageUnavailable);
      expect(large.destroyed).toBe(true);
      expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
      expect(await storage.head('large')).toBeUndefined();
      // There is space for smaller objects: the store works, but not for this object.
      await storage.check();
      await writeFile(join(path, 'rest'), bytesOf(2 * MiB)).catch(() => {});
      await folder.expectUnavailable(storage, /the disk is full/);
      expect((await collected((await storage.get('kept'))!)).toString()).toBe('x');
      await rm(join(path, 'rest'));
      await storage.remove('fill');
      await expectAvailable(storage);
    });

    test('a put that fails because the disk is full keeps the old object', async () => {
      await mountDisk();
      const storage = await openDirectory({ path });
      await storage.put('there', 'old');
      await expect(storage.put('there', streaming(bytesOf(8 * MiB)))).rejects.toThrow(/the disk is full/);
      expect((await collected((await storage.get('there'))!)).toString()).toBe('old');
      await storage.put('there', bytesOf(64 * KiB));
      expect(await storage.head('there')).toMatchObject({ bytes: 64 * KiB });
    });

    test('a read-only disk can be read, and is unavailable for writes', async () => {
      await mountDisk();
      const storage = await openDirectory({ path });
      await storage.put('kept', 'x');
      await run('mount', ['-o', 'remount,ro', path]);
      await folder.expectUnavailable(storage, /the file system is read-only/);
      await expect(storage.remove('kept')).rejects.toThrow(/the file system is read-only/);
      expect((await collected((await storage.get('kept'))!)).toString()).toBe('x');
      expect((await Array.fromAsync(storage.list(''))).map((object) => object.key)).toEqual(['kept']);
      const reopened = await openDirectory({ path });
      await folder.expectUnavailable(reopened, /the file system is read-only/);
      await run('mount', ['-o', 'remount,rw', path]);
      await expectAvailable(storage);
      await expectAvailable(reopened);
    });
  });
});
