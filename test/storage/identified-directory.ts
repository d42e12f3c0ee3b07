import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { createLog } from '../../src/floor/log.ts';
import { openDirectory } from '../../src/storage/directory/directory.ts';
import { withMirrorIdCheck } from '../../src/storage/mirror-id.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { openStore } from '../../src/store/store.ts';
import { newDatabase } from '../support/database.ts';
import { bytesOf, KiB, streaming } from './bodies.ts';

const log = createLog({ level: 'silent', pretty: false });

/** The records of a new database; call `open` once per process. */
export async function newRecords() {
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

export type IdentifiedDirectory = Awaited<ReturnType<typeof newIdentifiedDirectory>>;

/** A path for a directory that is recognized by its id, below a new folder, and new records. */
export async function newIdentifiedDirectory() {
  const home = await mkdtemp(join(tmpdir(), 'asset-mirror-identity-'));
  const path = join(home, 'mirror');
  const records = await newRecords();
  return {
    ...{ home, path, records },
    idFile: join(path, '_mirror/id'),
    /** Opens it like a process that starts. */
    start: async () => withMirrorIdCheck(await openDirectory({ path }), (await records.open()).id),
    async clear() {
      await records.clear();
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** The id in a file. */
export const idIn = async (file: string) => (await readFile(file, 'utf8')).trim();

/** Nothing is written, removed, or reported as missing. */
export async function expectRefusal(storage: Storage, message: RegExp): Promise<void> {
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
