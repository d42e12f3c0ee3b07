import { execFile } from 'node:child_process';
import {
  chmod,
  type FileHandle,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Rejected, StorageUnavailable } from '../../../src/floor/errors.ts';
import { createLog } from '../../../src/floor/log.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { type Storage, UploadLost } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, collected, KiB, MiB, streaming } from '../bodies.ts';
import { canMount } from '../grounds.ts';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;
const hasExfat =
  canMount &&
  (await run('sh', ['-c', 'command -v mkfs.exfat && command -v mount.exfat-fuse && losetup --find']).then(
    () => true,
    () => false,
  ));

describe('a directory', () => {
  let home: string;
  let path: string;
  let mounted = false;
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'asset-mirror-directory-'));
    path = join(home, 'mirror');
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    if (mounted) await run('umount', [path]);
    mounted = false;
    await rm(home, { recursive: true, force: true });
  });

  /** Check and put fail with the same error, which names the cause and the directory. */
  async function expectUnavailable(storage: Storage, message: RegExp): Promise<void> {
    for (const attempt of [
      () => storage.check(),
      () => storage.put('a/b', 'text'),
      () => storage.put('a/b', streaming(bytesOf(MiB)), { bytes: MiB }),
    ]) {
      const error = await attempt().then(
        () => undefined,
        (reason) => reason,
      );
      expect(error).toBeInstanceOf(StorageUnavailable);
      expect(error.message).toMatch(message);
      expect(error.message).toContain(path);
    }
  }

  async function expectAvailable(storage: Storage): Promise<void> {
    await storage.check();
    await storage.put('a/b', 'again');
    expect((await collected((await storage.get('a/b'))!)).toString()).toBe('again');
  }

  /** The folders below the root that are synced from now on, in this order. */
  async function syncedFolders(): Promise<string[]> {
    const synced: string[] = [];
    await using handle = await open(home);
    const { sync } = handle;
    vi.spyOn(Object.getPrototypeOf(handle), 'sync').mockImplementation(async function (this: FileHandle) {
      if ((await this.stat()).isDirectory()) synced.push(relative(path, await readlink(`/proc/self/fd/${this.fd}`)));
      return sync.call(this);
    });
    return synced;
  }

  test('a directory has a file for each object, named by its key', async () => {
    const storage = await openDirectory({ path });
    await storage.put('c1/p1/a1/Grüße #1.txt', 'text');
    expect(await readFile(join(path, 'c1/p1/a1/Grüße #1.txt'), 'utf8')).toBe('text');
    expect(storage.name).toBe(`file://${path}`);
  });

  test.each(['', '/', 'a//b', 'a/', '/a', '.', '..', '../out', 'a/../../out', 'a/./b', 'nul\0', '.asset-mirror-tmp/x'])(
    'a directory refuses a key that leads outside: %j',
    async (key) => {
      const storage = await openDirectory({ path });
      const body = streaming(bytesOf(10));
      await expect(storage.put(key, body)).rejects.toThrow('not a key');
      expect(body.destroyed).toBe(true);
      await expect(storage.get(key)).rejects.toThrow('not a key');
      await expect(storage.head(key)).rejects.toThrow('not a key');
      await expect(storage.remove(key)).rejects.toThrow('not a key');
      expect(await readdir(home)).toEqual(['mirror']);
    },
  );

  test('a file in the place of a directory, or the reverse, fails only the object concerned', async () => {
    const storage = await openDirectory({ path });
    await storage.put('a/b', 'text');
    for (const key of ['a', 'a/b/c']) {
      const error = await storage.put(key, 'text').catch((reason) => reason);
      expect(error.message).toBe(`store ${key}: another file or directory has its path`);
      expect(error).not.toBeInstanceOf(StorageUnavailable);
    }
    await storage.check();
    expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
  });

  test('a directory lists files of other programs, but neither drafts nor links', async () => {
    const storage = await openDirectory({ path });
    await writeFile(join(path, 'mine.txt'), 'x');
    await writeFile(join(path, '.asset-mirror-tmp', 'draft'), 'x');
    await mkdir(join(path, 'empty'));
    await run('ln', ['-s', '/etc', join(path, 'link')]);
    expect((await Array.fromAsync(storage.list(''))).map((object) => object.key)).toEqual(['mine.txt']);
  });

  test('a directory removes abandoned drafts when it is opened, but none that is under way', async () => {
    const storage = await openDirectory({ path });
    const drafts = join(path, '.asset-mirror-tmp');
    await writeFile(join(drafts, 'abandoned'), 'x');
    await utimes(join(drafts, 'abandoned'), new Date(0), new Date(Date.now() - 25 * 60 * 60 * 1000));
    await writeFile(join(drafts, 'under-way'), 'x');
    await storage.close();
    await openDirectory({ path });
    expect(await readdir(drafts)).toEqual(['under-way']);
  });

  test('a directory syncs removals, and folders that another process may have made without syncing them', async () => {
    const storage = await openDirectory({ path });
    await mkdir(join(path, 'c/p/a'), { recursive: true });
    const synced = await syncedFolders();
    await storage.put('c/p/a/one.txt', 'text');
    expect(synced.splice(0)).toEqual(['c/p/a', 'c/p', 'c', '']);
    await storage.put('c/p/a/two.txt', 'text');
    expect(synced.splice(0)).toEqual(['c/p/a']);
    await storage.put('c/p/b/x/one.txt', 'text');
    expect(synced.splice(0)).toEqual(['c/p/b/x', 'c/p/b', 'c/p']);
    await rm(join(path, 'c'), { recursive: true });
    await storage.put('c/p/a/one.txt', 'text');
    expect(synced.splice(0)).toEqual(['c/p/a', 'c/p', 'c', '']);
    await storage.remove('c/p/a/one.txt');
    expect(synced.splice(0)).toEqual(['c/p/a']);
  });

  test('a directory can be shared by two stores', async () => {
    const [one, two] = await Promise.all([openDirectory({ path }), openDirectory({ path })]);
    await Promise.all([one!.put('k/1', bytesOf(MiB)), two!.put('k/2', bytesOf(MiB)), one!.check(), two!.check()]);
    expect((await Array.fromAsync(two!.list('k/'))).map((object) => object.bytes)).toEqual([MiB, MiB]);
  });

  test('a directory that is removed at run time is reported missing, and not made again', async () => {
    const storage = await openDirectory({ path });
    await storage.put('kept', 'x');
    await rename(path, join(home, 'elsewhere'));
    await expectUnavailable(storage, /no longer exists/);
    await expect(Array.fromAsync(storage.list(''))).rejects.toBeInstanceOf(StorageUnavailable);
    expect(await readdir(home)).toEqual(['elsewhere']);
    await rename(join(home, 'elsewhere'), path);
    await expectAvailable(storage);
  });

  test('a directory that is emptied at run time still works', async () => {
    const storage = await openDirectory({ path });
    await storage.put('gone', 'x');
    await rm(path, { recursive: true });
    await mkdir(path);
    expect(await storage.head('gone')).toBeUndefined();
    await expectAvailable(storage);
  });

  test('a directory that is removed during a put makes that put fail as unavailable', async () => {
    const storage = await openDirectory({ path });
    const body = streaming(bytesOf(MiB), () => rm(path, { recursive: true }));
    await expect(storage.put('a/b', body, { bytes: MiB })).rejects.toBeInstanceOf(StorageUnavailable);
    expect(await Array.fromAsync(storage.list('a')).catch(() => [])).toEqual([]);
  });

  test.each([
    ['in its own place', () => path],
    ['in the place of its parent', () => home],
    ['in the place of its drafts', () => join(path, '.asset-mirror-tmp')],
  ])('a directory is unavailable while a file is %s', async (_, place) => {
    await rm(home, { recursive: true });
    if (place() !== home) await mkdir(home);
    if (place() !== home && place() !== path) await mkdir(path);
    await writeFile(place(), 'in the way');
    const storage = await openDirectory({ path });
    await expectUnavailable(storage, /a file has the path/);
    expect(await readFile(place(), 'utf8')).toBe('in the way');
    await rm(place());
    await expectAvailable(storage);
  });

  test.each([0o022, 0o027, 0o002])(
    'a directory creates files with the permissions that the umask %o leaves',
    async (mask) => {
      const before = process.umask(mask);
      try {
        const storage = await openDirectory({ path });
        await storage.put('a/b', 'content', {});
        expect((await stat(join(path, 'a/b'))).mode & 0o777).toBe(0o666 & ~mask);
      } finally {
        process.umask(before);
      }
    },
  );

  test.runIf(!isRoot)('a directory is unavailable until this account may write to it', async () => {
    const storage = await openDirectory({ path });
    await chmod(join(path, '.asset-mirror-tmp'), 0o500);
    await expectUnavailable(storage, /no permission to write there/);
    await chmod(join(path, '.asset-mirror-tmp'), 0o700);
    await expectAvailable(storage);
  });

  test('a directory keeps a draft under way however long its body pauses, in its own process and in others', async () => {
    const storage = await openDirectory({ path, touchMs: 20 });
    const other = await openDirectory({ path });
    const go = Promise.withResolvers<void>();
    const put = storage.put(
      'a/b',
      streaming(bytesOf(KiB), () => go.promise),
      { bytes: KiB },
    );
    const drafts = join(path, '.asset-mirror-tmp');
    const [draft] = await until('the draft', async () => {
      const names = await readdir(drafts);
      return names.length > 0 && names;
    });
    const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
    await utimes(join(drafts, draft!), old, old);
    await storage.check();
    await until(
      'the draft to be touched',
      async () => (await stat(join(drafts, draft!))).mtimeMs > Date.now() - 60_000,
    );
    await other.check();
    go.resolve();
    await put;
    expect(await storage.head('a/b')).toMatchObject({ bytes: KiB });
    await Promise.all([storage.close(), other.close()]);
  });

  test('an upload whose draft is gone does not take another file of its length for its own', async () => {
    const storage = await openDirectory({ path });
    const bytes = bytesOf(5 * MiB + 5);
    await storage.put('film', Buffer.alloc(bytes.length, 'another film '));
    const upload = await storage.uploads.begin('film', { bytes: bytes.length });
    const parts = [
      await storage.uploads.put(upload, 1, streaming(bytes.subarray(0, 5 * MiB))),
      await storage.uploads.put(upload, 2, streaming(bytes.subarray(5 * MiB))),
    ];
    const draft = join(path, '.asset-mirror-tmp', `${upload.id}.upload`);
    await rm(draft);
    await expect(storage.uploads.complete(upload, parts)).rejects.toThrow(UploadLost);
    // Renamed by a process that died before it removed the lines.
    await writeFile(join(path, 'film'), bytes);
    expect(await storage.uploads.complete(upload, parts)).toMatchObject({ bytes: bytes.length });
    expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
    await storage.close();
  });

  test('a directory removes abandoned drafts also while it is open', async () => {
    const storage = await openDirectory({ path, touchMs: 20 });
    const draft = join(path, '.asset-mirror-tmp', 'abandoned');
    const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
    await writeFile(draft, 'x');
    await utimes(draft, old, old);
    await until('it to be swept', async () => (await readdir(join(path, '.asset-mirror-tmp'))).length === 0);
    await storage.close();
  });

  test('a directory rejects a key that is too long for the file system, and finds no object there', async () => {
    const storage = await openDirectory({ path });
    for (const key of [`a/${'n'.repeat(256)}`, `${'deep/'.repeat(1000)}file`]) {
      const error = await storage.put(key, 'text').catch((reason) => reason);
      expect(error).toBeInstanceOf(Rejected);
      expect(error.message).toMatch(/too long for this file system; shorten KEY_TEMPLATE/);
      expect(await storage.head(key)).toBeUndefined();
      expect(await storage.get(key)).toBeUndefined();
      await storage.remove(key);
    }
    await storage.check();
    expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
  });

  /** The error of a put in a process under a limit of the shell. */
  async function underLimit(limit: string, before = ''): Promise<string> {
    const script = `
      import { openSync } from 'node:fs';
      import { openDirectory } from './src/storage/directory/directory.ts';
      const storage = await openDirectory({ path: ${JSON.stringify(path)} });
      ${before}
      const error = await storage.put('a/b', Buffer.alloc(4 << 20)).catch((reason) => reason);
      process.stdout.write(error.name + ' ' + error.message);
      process.exit(0);`;
    const { stdout } = await run('bash', [
      '-c',
      `ulimit ${limit}; exec "$0" --input-type=module -e "$1"`,
      process.execPath,
      script,
    ]);
    return stdout;
  }

  test('a directory rejects a file that is larger than the file system takes', async () => {
    expect(await underLimit('-f 1024')).toMatch(/^Rejected .* the file is larger than the store accepts/);
    expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
  });

  test('a directory is unavailable if the process has too many open files, and the error names the limit', async () => {
    const full = `try { for (;;) openSync('/dev/null'); } catch {}`;
    expect(await underLimit('-n 256', full)).toMatch(/^StorageUnavailable .* raise its limit \(ulimit -n\)/);
  });

  test('a kept file is another link, which needs no space and is not changed by a later put', async () => {
    const storage = await openDirectory({ path });
    await storage.put('c/p/a/file', 'the good one');
    await storage.keep('c/p/a/file', 'kept/file');
    expect((await stat(join(path, 'kept/file'))).ino).toBe((await stat(join(path, 'c/p/a/file'))).ino);
    await storage.put('c/p/a/file', 'another');
    expect((await collected((await storage.get('kept/file'))!)).toString()).toBe('the good one');
    expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
  });

  if (!canMount) test.skip('full and read-only disks are not tested: this process may not mount any');

  if (!hasExfat)
    test.skip('names that differ in case are not tested: exFAT (exfat-fuse, exfatprogs) cannot be mounted here');

  describe.runIf(hasExfat)('a file system that ignores case', () => {
    const mountExfat = async () => {
      const image = join(home, 'disk');
      await writeFile(image, '');
      await truncate(image, 32 * MiB);
      await run('mkfs.exfat', [image]);
      const device = (await run('losetup', ['--find', '--show', image])).stdout.trim();
      await mkdir(path);
      await run('mount.exfat-fuse', [device, path]);
      mounted = true;
      // It is detached when the disk is unmounted.
      await run('losetup', ['--detach', device]);
    };

    test.each([
      ['c/Project/asset/file', 'c/project/asset/file', 'c/Project'],
      ['c/p/AbC/file', 'c/p/aBc/other', 'c/p/AbC'],
      ['c/p/a/File', 'c/p/a/file', 'c/p/a/File'],
    ])(
      'a file whose name differs from %s in case is not changed by %s, and the error says why',
      async (first, second, taken) => {
        await mountExfat();
        const storage = await openDirectory({ path });
        await storage.put(first, 'the first');
        for (const store of [storage, await openDirectory({ path })]) {
          for (const put of [
            () => store.put(second, 'the second'),
            () => store.uploads.begin(second, { bytes: 20 * MiB }),
          ]) {
            const error = await put().catch((reason) => reason);
            expect(error).toBeInstanceOf(Rejected);
            expect(error.message).toContain(
              `store ${second}: ${path}/${taken} differs only in case, and this file system ignores case`,
            );
          }
          await store.remove(second);
          expect((await collected((await store.get(first))!)).toString()).toBe('the first');
        }
        // Others have their place beside it, and the first can be replaced and removed.
        await storage.put('c/p/other/file', 'other');
        await storage.put(first, 'again');
        expect((await collected((await storage.get(first))!)).toString()).toBe('again');
        await storage.remove(first);
        expect(await storage.head(first)).toBeUndefined();
      },
    );

    test('a file system that ignores case is logged once when the directory is opened', async () => {
      await mountExfat();
      const lines: string[] = [];
      const destination = new Writable({
        write(line, _, done) {
          lines.push(String(line));
          done();
        },
      });
      const log = createLog({ level: 'info', pretty: false, destination });
      const storage = await openDirectory({ path, log });
      expect(lines.map((line) => JSON.parse(line))).toMatchObject([
        { level: 'warn', directory: path, msg: expect.stringMatching(/file system ignores case/) },
      ]);
      await storage.put('c/p/a/file', 'text');
      expect(lines).toHaveLength(1);
    });

    test('a file is kept as a copy, which is verified, where the file system has no links', async () => {
      await mountExfat();
      const storage = await openDirectory({ path });
      await storage.put('c/p/a/file', 'the good one');
      for (const text of ['the good one', 'the next']) {
        expect(await storage.keep('c/p/a/file', '_mirror/versions/a/1/file')).toMatchObject({ bytes: text.length });
        expect((await collected((await storage.get('_mirror/versions/a/1/file'))!)).toString()).toBe(text);
        await storage.put('c/p/a/file', 'the next');
      }
      expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
    });

    test('of two keys that differ in case and are written at the same time, one is refused', async () => {
      await mountExfat();
      const storage = await openDirectory({ path });
      const results = await Promise.allSettled(['c/p/A/file', 'c/p/a/file'].map((key) => storage.put(key, key)));
      const [written] = results.filter((result) => result.status === 'fulfilled');
      expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
      const { key } = written!.value;
      expect((await collected((await storage.get(key))!)).toString()).toBe(key);
    });
  });

  describe.runIf(canMount)('a disk of its own', () => {
    const mountDisk = async (size = 4) => {
      await mkdir(path);
      await run('mount', ['-t', 'tmpfs', '-o', `size=${size}m`, 'tmpfs', path]);
      mounted = true;
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
      await expectUnavailable(storage, /the disk is full/);
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
      await expectUnavailable(storage, /the file system is read-only/);
      await expect(storage.remove('kept')).rejects.toThrow(/the file system is read-only/);
      expect((await collected((await storage.get('kept'))!)).toString()).toBe('x');
      expect((await Array.fromAsync(storage.list(''))).map((object) => object.key)).toEqual(['kept']);
      const reopened = await openDirectory({ path });
      await expectUnavailable(reopened, /the file system is read-only/);
      await run('mount', ['-o', 'remount,rw', path]);
      await expectAvailable(storage);
      await expectAvailable(reopened);
    });
  });
});
