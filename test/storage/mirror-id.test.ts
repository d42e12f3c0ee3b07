// @module-tag slow
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { createLog } from '../../src/floor/log.ts';
import { openDirectory } from '../../src/storage/directory/directory.ts';
import { identified } from '../../src/storage/mirror-id.ts';
import { type Storage, UploadLost } from '../../src/storage/storage.ts';
import { openStore } from '../../src/store/store.ts';
import { newDatabase } from '../support/database.ts';
import { until } from '../support/until.ts';
import { bytesOf, collected, KiB, streaming } from './bodies.ts';
import { conformance } from './conformance.ts';
import { canMount, newBucket, newDirectory } from './grounds.ts';

const run = promisify(execFile);
const log = createLog({ level: 'silent', pretty: false });

/** The records of a new database; call `open` once per process. */
async function newRecords() {
  const database = await newDatabase();
  const open: { close(): Promise<void> }[] = [];
  return {
    async open() {
      const store = await openStore({ url: database.url, log });
      open.push(store);
      return store.bucket;
    },
    async clear() {
      for (const store of open) await store.close();
      await database.drop();
    },
  };
}

conformance('a directory that is recognized by its id', async () => {
  const [ground, records] = await Promise.all([newDirectory(), newRecords()]);
  const { id } = await records.open();
  return {
    ...ground,
    storage: identified(ground.storage, id),
    async clear() {
      await ground.clear();
      await records.clear();
    },
  };
});

describe('a bucket with a mirror id', () => {
  let home: string;
  let path: string;
  let idFile: string;
  let records: Awaited<ReturnType<typeof newRecords>>;
  const mounted: string[] = [];
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'asset-mirror-identity-'));
    path = join(home, 'mirror');
    idFile = join(path, '_mirror/id');
    records = await newRecords();
  });
  afterEach(async () => {
    for (const place of mounted.splice(0).reverse()) await run('umount', [place]);
    await records.clear();
    await rm(home, { recursive: true, force: true });
  });

  const start = async () => identified(await openDirectory({ path }), (await records.open()).id);
  const idIn = async (file: string) => (await readFile(file, 'utf8')).trim();

  /** Nothing is written, removed, or reported as missing. */
  async function expectRefusal(storage: Storage, message: RegExp): Promise<void> {
    const body = streaming(bytesOf(KiB));
    for (const attempt of [
      () => storage.put('a/b', body, { bytes: KiB }),
      () => storage.put('a/b', 'text'),
      () => storage.get('a/b'),
      () => storage.head('a/b'),
      () => Array.fromAsync(storage.list('')),
      () => storage.remove('a/b'),
      () => storage.check(),
    ]) {
      const error = await attempt().then(
        () => undefined,
        (reason) => reason,
      );
      expect(error).toBeInstanceOf(StorageUnavailable);
      expect(error.message).toMatch(message);
    }
    expect(body.destroyed).toBe(true);
  }

  test('a bucket gets a mirror id before the first object, and is recognized by it from then on', async () => {
    const storage = await start();
    await storage.put('a/b', 'text');
    expect(await idIn(idFile)).toMatch(/^[\da-f-]{36}$/);
    const again = await start();
    expect((await collected((await again.get('a/b'))!)).toString()).toBe('text');
    await again.check();
  });

  test('an object counts as missing only if the store still has the mirror id', async () => {
    const { stamp: _, ...directory } = await openDirectory({ path });
    let answers = true;
    const unless404 = <T>(found: Promise<T | undefined>) => (answers ? found : Promise.resolve(undefined));
    const proxied: Storage = {
      ...directory,
      get: (key, options) => unless404(directory.get(key, options)),
      head: (key, options) => unless404(directory.head(key, options)),
      keep: (key, as, options) => unless404(directory.keep(key, as, options)),
      uploads: {
        ...directory.uploads,
        list: (upload) => unless404(directory.uploads.list(upload)),
        async put(upload, number, body) {
          if (!answers) throw new UploadLost('no upload');
          return directory.uploads.put(upload, number, body);
        },
      },
    };
    const storage = identified(proxied, (await records.open()).id);
    await storage.put('a/b', 'text');
    const upload = await storage.uploads.begin('a/c', { bytes: 10_000_000 });
    expect(await storage.head('a/no')).toBeUndefined();
    for (const attempt of [
      () => storage.get('a/b'),
      () => storage.head('a/b'),
      () => storage.keep('a/b', 'a/kept'),
      () => storage.uploads.list(upload),
      () => storage.uploads.put(upload, 1, streaming(bytesOf(KiB))),
    ]) {
      answers = true;
      await storage.check();
      answers = false;
      await expect(attempt()).rejects.toBeInstanceOf(StorageUnavailable);
    }
  });

  test('a bucket gets one mirror id from many processes that start at the same time', async () => {
    const processes = await Promise.all(Array.from({ length: 8 }, start));
    await Promise.all(processes.map((storage, i) => (i % 2 ? storage.check() : storage.put(`a/${i}`, 'text'))));
    await Promise.all(processes.map((storage) => storage.check()));
    expect(await (await records.open()).id(async () => 'none')).toBe(await idIn(idFile));
  });

  test('a bucket with a mirror id is refused by records without one, unless they are rebuilt from it', async () => {
    await mkdir(join(path, '_mirror'), { recursive: true });
    await writeFile(idFile, 'brought along\n');
    const refused = await start();
    await expectRefusal(refused, /says brought along.*If the database was lost, `asset-mirror rebuild` restores/);
    expect(await (await records.open()).known()).toBeUndefined();
    expect(await readdir(path)).toEqual(expect.not.arrayContaining(['a']));

    const adopting = identified(await openDirectory({ path }), (await records.open()).id, { adopt: true });
    await adopting.check();
    expect(await (await records.open()).known()).toBe('brought along');
    // A refused process finds it settled.
    await refused.put('a/b', 'text');
    expect(await idIn(idFile)).toBe('brought along');
  });

  test('a bucket is recognized by the mirror id of a process that died before the records had it', async () => {
    const dying = (await records.open()).id;
    await dying(async (proposed) => {
      await mkdir(join(path, '_mirror'), { recursive: true });
      await writeFile(idFile, `${proposed}\n`);
      throw new Error('killed');
    }).catch(() => {});
    expect(await (await records.open()).known()).toBeUndefined();
    await (await start()).put('a/b', 'text');
    expect(await (await records.open()).known()).toBe(await idIn(idFile));
  });

  test('a bucket whose mirror id could not be written is not remembered', async () => {
    await writeFile(path, 'in the way');
    const storage = await start();
    await expectRefusal(storage, /a file has the path/);
    await rm(path);
    await storage.put('a/b', 'text');
    expect(await (await records.open()).id(async () => 'none')).toBe(await idIn(idFile));
  });

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
    const storage = identified(await openDirectory({ path }), (await records.open()).id, {
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

  test('a buffer is stored as it was when put was called, even if it changes while the mirror id is checked', async () => {
    const storage = await start();
    const bytes = Buffer.from('text');
    const put = storage.put('a/b', bytes);
    bytes.fill('x');
    await put;
    expect((await collected((await storage.get('a/b'))!)).toString()).toBe('text');
  });

  test('a check reads the mirror id after it was called, although another check runs already', async () => {
    const directory = await openDirectory({ path });
    const [isRead, isReleased] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let holds = false;
    const get: Storage['get'] = async (key, options) => {
      const body = await directory.get(key, options);
      if (!holds) return body;
      holds = false;
      const content = await collected(body!);
      isRead.resolve();
      await isReleased.promise;
      return Readable.from([content]);
    };
    const storage = identified({ ...directory, get }, (await records.open()).id);
    await storage.put('a/b', 'text');
    holds = true;
    const before = storage.check();
    await isRead.promise;
    await writeFile(idFile, 'another mirror\n');
    const after = storage.check();
    isReleased.resolve();
    await before;
    await expect(after).rejects.toThrow('its object _mirror/id says another mirror');
  });

  test('an abort while the mirror id is checked ends a put at once', async () => {
    const directory = await openDirectory({ path });
    const storage = identified(directory, () => new Promise(() => {}));
    const reason = new Error('enough');
    const stop = new AbortController();
    const body = streaming(bytesOf(KiB));
    const put = storage.put('a/b', body, { bytes: KiB, signal: stop.signal });
    stop.abort(reason);
    await expect(put).rejects.toBe(reason);
    expect(body.destroyed).toBe(true);
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
      await identified(ground.storage, (await records.open()).id).put('a/b', 'text');
      await ground.raw.send(new DeleteObjectCommand({ Bucket: ground.bucket, Key: '_mirror/id' }));
      await expectRefusal(identified(ground.storage, (await records.open()).id), /no object _mirror\/id/);
    } finally {
      await ground.clear();
    }
  });

  test.runIf(s3)('a bucket in S3 that is emptied while the process runs is refused after some seconds', async () => {
    const ground = await newBucket(s3!);
    try {
      const storage = identified(ground.storage, (await records.open()).id);
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
