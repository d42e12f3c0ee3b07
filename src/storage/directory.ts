import { randomUUID } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { StorageUnavailable } from '../errors.ts';
import { Meter } from './meter.ts';
import type { PutOptions, Storage, Stored, StoredObject } from './storage.ts';

/** Holds files under way; never listed, and swept when the store is opened. */
const workshop = '.asset-mirror-tmp';

/**
 * Objects as files below a directory. A file is written beside, synced to the disk, then renamed into its place, and the
 * rename is synced too. Content types and metadata have no place in a file: the record beside it holds what matters.
 */
export async function openDirectory(options: { path: string }): Promise<Storage> {
  const root = options.path;
  const temporary = join(root, workshop);
  const fileOf = (key: string) => {
    if (key === '' || key.split('/').some((s) => s === '' || s === '.' || s === '..') || key.includes('\0')) {
      throw new Error(`not a key: ${JSON.stringify(key)}`);
    }
    return join(root, key);
  };

  async function write(key: string, body: Readable | Buffer | string, put: PutOptions): Promise<Stored> {
    const target = fileOf(key);
    const draft = join(temporary, randomUUID());
    const meter = new Meter({ expected: put.bytes, md5: false });
    try {
      await mkdir(temporary, { recursive: true });
      const file = await open(draft, 'wx', 0o644);
      try {
        const source = body instanceof Readable ? body : Readable.from([Buffer.from(body)], { objectMode: false });
        await pipeline(source, meter, (chunks: AsyncIterable<Buffer>) => file.writeFile(chunks), {
          signal: put.signal,
        });
        await file.sync();
        const { size } = await file.stat();
        if (size !== meter.passed) throw new Error(`store ${key}: the file has ${size} bytes of ${meter.passed}`);
      } finally {
        await file.close();
      }
      await mkdir(dirname(target), { recursive: true });
      await rename(draft, target);
      await syncDirectory(dirname(target));
      return { key, bytes: meter.passed, etag: undefined, checksums: meter.checksums() };
    } catch (error) {
      await rm(draft, { force: true }).catch(() => {});
      throw sorted(error, root);
    }
  }

  async function* walk(folder: string, prefix: string): AsyncGenerator<StoredObject> {
    const entries = await readdir(folder === '' ? root : join(root, folder), { withFileTypes: true }).catch((error) => {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw sorted(error, root);
    });
    const named = entries
      .filter((entry) => !(folder === '' && entry.name === workshop))
      .map((entry) => ({
        entry,
        key: (folder === '' ? '' : `${folder}/`) + entry.name + (entry.isDirectory() ? '/' : ''),
      }))
      .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    for (const { entry, key } of named) {
      if (entry.isDirectory()) {
        if (key.startsWith(prefix) || prefix.startsWith(key)) yield* walk(key.slice(0, -1), prefix);
      } else if (entry.isFile() && key.startsWith(prefix)) {
        const found = await describe(key);
        if (found) yield found;
      }
    }
  }

  async function describe(key: string): Promise<StoredObject | undefined> {
    try {
      const entry = await stat(fileOf(key));
      return entry.isFile() ? { key, bytes: entry.size, etag: undefined, modified: entry.mtime } : undefined;
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw sorted(error, root);
    }
  }

  const storage: Storage = {
    name: `file://${root}`,
    put: (key, body, put = {}) => write(key, body, put),
    async get(key, { signal } = {}) {
      if (!(await describe(key))) return undefined;
      return createReadStream(fileOf(key), { ...(signal && { signal }) });
    },
    head: describe,
    list: (prefix) => walk('', prefix),
    async remove(key) {
      await unlink(fileOf(key)).catch((error) => {
        if (!isAbsent(error)) throw sorted(error, root);
      });
    },
    async check() {
      const probe = join(temporary, `probe-${randomUUID()}`);
      try {
        await mkdir(temporary, { recursive: true });
        const file = await open(probe, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY);
        try {
          await file.write(Buffer.alloc(1 << 16));
          await file.sync();
        } finally {
          await file.close();
        }
      } catch (error) {
        throw sorted(error, root);
      } finally {
        await rm(probe, { force: true }).catch(() => {});
      }
    },
    async close() {},
  };
  return storage;
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

const isAbsent = (error: unknown) => ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');

const words: Record<string, string> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'this process may not write there',
  EPERM: 'this process may not write there',
  EIO: 'the disk reports errors',
  ENOTDIR: 'a file is in the way of the directory',
};

function sorted(error: unknown, root: string): unknown {
  const word = words[(error as NodeJS.ErrnoException).code ?? ''];
  return word ? new StorageUnavailable(`${root}: ${word}`, { cause: error }) : error;
}
