import { execFile } from 'node:child_process';
import { mkdir, readdir, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Rejected } from '../../../src/floor/errors.ts';
import { createLog } from '../../../src/floor/log.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { collected, MiB } from '../bodies.ts';
import { canMount } from '../grounds.ts';
import { type Folder, newFolder } from './folder.ts';

const run = promisify(execFile);
const hasExfat =
  canMount &&
  (await run('sh', ['-c', 'command -v mkfs.exfat && command -v mount.exfat-fuse && losetup --find']).then(
    () => true,
    () => false,
  ));

describe('a directory', () => {
  let folder: Folder;
  let home: string;
  let path: string;
  beforeEach(async () => {
    folder = await newFolder();
    ({ home, path } = folder);
  });
  afterEach(() => folder.clear());

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
      folder.mounted = true;
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
});
