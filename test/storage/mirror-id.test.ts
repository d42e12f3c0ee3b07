// @module-tag slow
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { openDirectory } from '../../src/storage/directory/directory.ts';
import { withMirrorIdCheck } from '../../src/storage/mirror-id.ts';
import { type Storage, UploadLost } from '../../src/storage/storage.ts';
import { bytesOf, collected, KiB, streaming } from './bodies.ts';
import { expectRefusal, type IdentifiedDirectory, idIn, newIdentifiedDirectory } from './identified-directory.ts';

describe('a bucket with a mirror id', () => {
  let folder: IdentifiedDirectory;
  let path: string;
  let idFile: string;
  let records: IdentifiedDirectory['records'];
  beforeEach(async () => {
    folder = await newIdentifiedDirectory();
    ({ path, idFile, records } = folder);
  });
  afterEach(() => folder.clear());

  const start = () => folder.start();

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
    const storage = withMirrorIdCheck(proxied, (await records.open()).id);
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

    const adopting = withMirrorIdCheck(await openDirectory({ path }), (await records.open()).id, { adopt: true });
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
    const storage = withMirrorIdCheck({ ...directory, get }, (await records.open()).id);
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
    const storage = withMirrorIdCheck(directory, () => new Promise(() => {}));
    const reason = new Error('enough');
    const stop = new AbortController();
    const body = streaming(bytesOf(KiB));
    const put = storage.put('a/b', body, { bytes: KiB, signal: stop.signal });
    stop.abort(reason);
    await expect(put).rejects.toBe(reason);
    expect(body.destroyed).toBe(true);
  });
});
