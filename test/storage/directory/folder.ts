import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { bytesOf, collected, MiB, streaming } from '../bodies.ts';

const run = promisify(execFile);

export type Folder = Awaited<ReturnType<typeof newFolder>>;

/** A path for a directory, below a new folder. */
export async function newFolder() {
  const home = await mkdtemp(join(tmpdir(), 'asset-mirror-directory-'));
  const path = join(home, 'mirror');
  return {
    ...{ home, path },
    /** Whether a disk is mounted there, which is to be unmounted at the end. */
    mounted: false,
    /** Check and put fail with the same error, which names the cause and the directory. */
    async expectUnavailable(storage: Storage, message: RegExp): Promise<void> {
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
    },
    async clear() {
      if (this.mounted) await run('umount', [path]);
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** A check succeeds, and so do a put and a get. */
export async function expectAvailable(storage: Storage): Promise<void> {
  await storage.check();
  await storage.put('a/b', 'again');
  expect((await collected((await storage.get('a/b'))!)).toString()).toBe('again');
}
