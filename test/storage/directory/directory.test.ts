import { execFile } from 'node:child_process';
import {
  chmod,
  type FileHandle,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { join, relative } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Rejected, StorageUnavailable } from '../../../src/floor/errors.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { bytesOf, collected, MiB, streaming } from '../bodies.ts';
import { expectAvailable, type Folder, newFolder } from './folder.ts';

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;

describe('a directory', () => {
  let folder: Folder;
  let home: string;
  let path: string;
  beforeEach(async () => {
    folder = await newFolder();
    ({ home, path } = folder);
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    await folder.clear();
  });

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
    await folder.expectUnavailable(storage, /no longer exists/);
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
    await folder.expectUnavailable(storage, /a file has the path/);
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
    await folder.expectUnavailable(storage, /no permission to write there/);
    await chmod(join(path, '.asset-mirror-tmp'), 0o700);
    await expectAvailable(storage);
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
});
