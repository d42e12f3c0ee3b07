// @module-tag slow
import { execFile } from 'node:child_process';
import { cp, mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { openDirectory } from '../../src/storage/directory/directory.ts';
import { withMirrorIdCheck } from '../../src/storage/mirror-id.ts';
import { until } from '../support/until.ts';
import { bytesOf, collected, KiB, streaming } from './bodies.ts';
import { canMount, newBucket } from './grounds.ts';
import { expectRefusal, type IdentifiedDirectory, idIn, newIdentifiedDirectory } from './identified-directory.ts';

const run = promisify(execFile);

describe('a bucket with a mirror id', () => {
  let folder: IdentifiedDirectory;
  let home: string;
  let path: string;
  let idFile: string;
  let records: IdentifiedDirectory['records'];
  const mounted: string[] = [];
  beforeEach(async () => {
    folder = await newIdentifiedDirectory();
    ({ home, path, idFile, records } = folder);
  });
  afterEach(async () => {
    for (const place of mounted.splice(0).reverse()) await run('umount', [place]);
    await folder.clear();
  });

  const start = () => folder.start();

  test('a bucket that was replaced gets no object from many concurrent writers', async () => {
    const storage = await start();
    const writeLater = async (rounds: number) => {
      for (let i = 0; i < rounds; i++) await setImmediate();
      await storage.put(`late/${rounds}`, 'text');
    };
    for (let round = 0; round < 20; round++) {
      await storage.check();
      await rename(path, `${path}.aside`);
      await mkdir(path);
      const outcomes = await Promise.allSettled(Array.from({ length: 40 }, (_, rounds) => writeLater(rounds)));
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toEqual([]);
      expect(await readdir(path, { recursive: true })).toEqual([]);
      await rm(path, { recursive: true });
      await rename(`${path}.aside`, path);
    }
  });

  test('a bucket that is an empty directory at the start is reported missing, and used when it is back', async () => {
    await (await start()).put('a/b', 'text');
    await rename(path, join(home, 'aside'));
    const storage = await start();
    await expectRefusal(storage, /no object _mirror\/id.*Check that the disk is mounted, and STORAGE_URL/);
    expect(await readdir(path)).toEqual(['.asset-mirror-tmp']);
    await rm(path, { recursive: true });
    await rename(join(home, 'aside'), path);
    await storage.check();
    expect((await collected((await storage.get('a/b'))!)).toString()).toBe('text');
  });

  test('a bucket can be emptied on purpose: writing the mirror id that the error names makes it right again', async () => {
    await (await start()).put('a/b', 'text');
    await rm(path, { recursive: true });
    const storage = await start();
    const error = await storage.check().catch((reason) => reason);
    const [, id] = /put an object _mirror\/id there with this content: (\S+)$/.exec(error.message)!;
    await mkdir(join(path, '_mirror'));
    await writeFile(idFile, id!);
    await storage.check();
    await storage.put('c/d', 'text');
  });

  test('a bucket with another mirror id is refused', async () => {
    await (await start()).put('a/b', 'text');
    const right = await idIn(idFile);
    await writeFile(idFile, 'of another');
    await expectRefusal(await start(), new RegExp(`says of another; the database expects ${right}`));
    expect(await idIn(idFile)).toBe('of another');
  });

  test.each<[string, () => Promise<unknown>]>([
    [
      'replaced by an empty directory',
      async () => {
        await rename(path, join(home, 'aside'));
        await mkdir(path);
      },
    ],
    [
      'deleted and made again',
      async () => {
        await rm(path, { recursive: true });
        await mkdir(join(path, '.asset-mirror-tmp'), { recursive: true });
      },
    ],
    ['without its id', () => rm(idFile)],
    ['with the id of another mirror', () => writeFile(idFile, 'of another')],
    [
      'replaced by the directory of another mirror',
      async () => {
        await rename(path, join(home, 'aside'));
        await mkdir(join(path, '_mirror'), { recursive: true });
        await writeFile(idFile, 'of another');
      },
    ],
  ])('a bucket that is %s while the process runs is refused by the next operation', async (_, replace) => {
    let reports = 0;
    const storage = withMirrorIdCheck(await openDirectory({ path }), (await records.open()).id, {
      onWrong: async () => {
        reports++;
      },
    });
    await storage.put('a/b', 'text');
    const upload = await storage.uploads.begin('a/c', { bytes: KiB });
    await replace();
    const part = streaming(bytesOf(KiB));
    await expect(storage.uploads.put(upload, 1, part)).rejects.toThrow(/not the bucket of this database/);
    await expectRefusal(storage, /put an object _mirror\/id there with this content/);
    await expect(storage.uploads.begin('a/d', { bytes: KiB })).rejects.toThrow(StorageUnavailable);
    const written = (await Array.fromAsync((await openDirectory({ path })).list(''))).map(({ key }) => key);
    expect(written.filter((key) => !['_mirror/id', 'a/b'].includes(key))).toEqual([]);
    expect(reports).toBe(1);
  });

  test('a bucket is accepted if the same mirror id was written again, as by a copy of all files', async () => {
    const storage = await start();
    await storage.put('a/b', 'text');
    await cp(path, join(home, 'copy'), { recursive: true });
    await rm(path, { recursive: true });
    await rename(join(home, 'copy'), path);
    await storage.put('c/d', 'text');
    expect((await Array.fromAsync(storage.list(''))).map(({ key }) => key)).toEqual(['_mirror/id', 'a/b', 'c/d']);
  });

  if (!canMount) test.skip('disks that come and go are not tested: this process may not mount any');

  describe.runIf(canMount)('a disk of its own', () => {
    const disk = async (name: string) => {
      const place = join(home, name);
      await mkdir(place);
      await run('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', place]);
      mounted.push(place);
      return place;
    };
    const mount = async (place: string) => {
      await mkdir(path, { recursive: true });
      await run('mount', ['--bind', place, path]);
      mounted.push(path);
    };
    const unmount = async () => {
      await run('umount', [path]);
      mounted.splice(mounted.indexOf(path), 1);
    };

    test('a disk that is not mounted at the start is waited for', async () => {
      const place = await disk('disk');
      await mount(place);
      await (await start()).put('a/b', 'text');
      await unmount();
      const storage = await start();
      await expectRefusal(storage, /Check that the disk is mounted/);
      await mount(place);
      await storage.check();
      await storage.put('c/d', 'text');
      expect((await Array.fromAsync(storage.list(''))).map(({ key }) => key)).toEqual(['_mirror/id', 'a/b', 'c/d']);
    });

    test('a disk that was away is used again, also under another device number, and no object counts as missing', async () => {
      const [one, other] = [await disk('one'), await disk('other')];
      await mount(one);
      const storage = await start();
      await storage.put('a/b', 'text');
      await cp(one, other, { recursive: true });
      await unmount();
      await expectRefusal(storage, /another disk is mounted than before/);
      expect(await readdir(path)).toEqual([]);
      await mount(other);
      await storage.check();
      expect((await collected((await storage.get('a/b'))!)).toString()).toBe('text');
      await storage.put('c/d', 'text');
    });
  });

  const s3 = inject('s3');
  test.runIf(s3)('a bucket in S3 that was emptied is reported missing', async () => {
    const ground = await newBucket(s3!);
    try {
      await withMirrorIdCheck(ground.storage, (await records.open()).id).put('a/b', 'text');
      await ground.raw.send(new DeleteObjectCommand({ Bucket: ground.bucket, Key: '_mirror/id' }));
      await expectRefusal(withMirrorIdCheck(ground.storage, (await records.open()).id), /no object _mirror\/id/);
    } finally {
      await ground.clear();
    }
  });

  test.runIf(s3)('a bucket in S3 that is emptied while the process runs is refused after some seconds', async () => {
    const ground = await newBucket(s3!);
    try {
      const storage = withMirrorIdCheck(ground.storage, (await records.open()).id);
      await storage.put('a/b', 'text');
      await ground.raw.send(new DeleteObjectCommand({ Bucket: ground.bucket, Key: '_mirror/id' }));
      const error = await until('a put to be refused', () =>
        storage.put('a/c', 'text').then(
          () => undefined,
          (reason) => reason,
        ),
      );
      expect(error).toBeInstanceOf(StorageUnavailable);
      await expectRefusal(storage, /no object _mirror\/id/);
    } finally {
      await ground.clear();
    }
  });
});
