import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { addAbortSignal, type Readable } from 'node:stream';
import { StorageUnavailable } from '../errors.ts';
import { Meter, openBody } from './meter.ts';
import type { PutOptions, Storage, Stored, StoredObject } from './storage.ts';

/** Holds files under way; never listed, and swept when the store is opened. */
const workshop = '.asset-mirror-tmp';

/** A draft that nobody has written to for so long belongs to a process that died. */
const abandonedMs = 24 * 60 * 60 * 1000;

/**
 * Objects as files below a directory. A file is written beside, synced to the disk, then renamed into its place, and the
 * rename is synced too. Content types and metadata have no place in a file: the record beside it holds what matters.
 */
export async function openDirectory(options: { path: string }): Promise<Storage> {
  const root = options.path;
  const temporary = join(root, workshop);
  const fileOf = (key: string) => {
    const segments = key.split('/');
    if (segments.some((s) => s === '' || s === '.' || s === '..' || s.includes('\0')) || segments[0] === workshop) {
      throw new Error(`not a key: ${JSON.stringify(key)}`);
    }
    return join(root, key);
  };

  /** What the disk says about the whole store is told apart from what a body or one file does. */
  async function onDisk<T>(work: Promise<T>): Promise<T> {
    return work.catch((error) => {
      throw sorted(error, root);
    });
  }

  let made = false;
  let device: number | undefined;
  /** Made once: a directory that was there and is gone may be a disk that is not mounted, and is not to be made anew. */
  async function make(): Promise<void> {
    if (!made) await mkdir(root, { recursive: true });
    made = true;
  }

  /** What is written below an empty mount point is hidden when the disk is back; and nothing of the disk is seen there. */
  async function sameDisk(): Promise<number> {
    const place = await stat(root);
    if (!place.isDirectory()) throw new StorageUnavailable(`${root}: ${words.ENOTDIR}`);
    const { dev } = place;
    if (dev !== (device ?? dev)) {
      throw new StorageUnavailable(
        `${root}: another disk is there than before; mount the right one, or if it is this one, start anew`,
      );
    }
    return dev;
  }

  async function prepare(): Promise<void> {
    await make();
    device = await sameDisk();
    await mkdir(temporary).catch((error) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }

  async function write(key: string, body: Readable | Buffer | string, put: PutOptions): Promise<Stored> {
    const flow = openBody(body, put.signal);
    const { breaker } = flow;
    const draft = join(temporary, randomUUID());
    const meter = new Meter({ expected: put.bytes, md5: false });
    try {
      breaker.signal.throwIfAborted();
      const target = fileOf(key);
      await onDisk(prepare());
      const file = await onDisk(open(draft, 'wx', 0o644));
      try {
        flow.flowInto(meter);
        for await (const chunk of meter) {
          await onDisk(file.writeFile(chunk)).catch((error) => {
            breaker.abort(error);
            throw error;
          });
        }
        await onDisk(file.sync());
        const { size } = await onDisk(file.stat());
        if (size !== meter.passed) throw new Error(`store ${key}: the file has ${size} bytes of ${meter.passed}`);
      } finally {
        await file.close();
      }
      breaker.signal.throwIfAborted();
      await onDisk(place(draft, target, key));
      return { key, bytes: meter.passed, etag: undefined, checksums: meter.checksums() };
    } catch (error) {
      await rm(draft, { force: true }).catch(() => {});
      breaker.signal.throwIfAborted();
      throw error;
    } finally {
      flow.close();
    }
  }

  /** The rename, and every directory made for it, are on the disk when this returns. */
  async function place(draft: string, target: string, key: string): Promise<void> {
    const folder = dirname(target);
    try {
      const first = await mkdir(folder, { recursive: true });
      await rename(draft, target);
      for (let at = folder; ; at = dirname(at)) {
        await syncDirectory(at);
        if (!first || at === dirname(first)) return;
      }
    } catch (error) {
      // In the way of this one object, not of the store.
      if (['EEXIST', 'ENOTDIR', 'EISDIR', 'ENOTEMPTY'].includes(codeOf(error))) {
        throw new Error(`store ${key}: a file or directory is in its place`, { cause: error });
      }
      throw error;
    }
  }

  async function* walk(folder: string, prefix: string, signal?: AbortSignal): AsyncGenerator<StoredObject> {
    const entries = await readdir(folder === '' ? root : join(root, folder), { withFileTypes: true }).catch(
      async (error) => {
        if (folder === '' || codeOf(error) !== 'ENOENT') throw sorted(error, root);
        await absent();
        return [];
      },
    );
    const named = entries
      .filter((entry) => !(folder === '' && entry.name === workshop))
      .map((entry) => ({
        entry,
        key: (folder === '' ? '' : `${folder}/`) + entry.name + (entry.isDirectory() ? '/' : ''),
      }))
      .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    if (folder === '') await onDisk(sameDisk());
    for (const { entry, key } of named) {
      signal?.throwIfAborted();
      if (entry.isDirectory()) {
        if (key.startsWith(prefix) || prefix.startsWith(key)) yield* walk(key.slice(0, -1), prefix, signal);
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
      if (!isAbsent(error)) throw sorted(error, root);
      await absent();
      return undefined;
    }
  }

  /** Nothing there is an answer only while the disk is: without it, nothing would be there at all. */
  async function absent(): Promise<void> {
    await onDisk(make().then(sameDisk));
  }

  /** Only what is old: another process may be at work here. */
  async function sweep(): Promise<void> {
    for (const name of await readdir(temporary)) {
      const draft = join(temporary, name);
      if (Date.now() - (await stat(draft)).mtimeMs > abandonedMs) await rm(draft, { force: true });
    }
  }

  const storage: Storage = {
    name: `file://${root}`,
    put: (key, body, put = {}) => write(key, body, put),
    async get(key, { signal } = {}) {
      signal?.throwIfAborted();
      const file = await open(fileOf(key), 'r').catch(async (error) => {
        if (!isAbsent(error)) throw sorted(error, root);
        await absent();
        return undefined;
      });
      if (!(await file?.stat())?.isFile()) {
        await file?.close();
        return undefined;
      }
      const stream = file!.createReadStream();
      return signal ? addAbortSignal(signal, stream) : stream;
    },
    async head(key, { signal } = {}) {
      signal?.throwIfAborted();
      return describe(key);
    },
    list: (prefix, { signal } = {}) => walk('', prefix, signal),
    async remove(key) {
      await unlink(fileOf(key)).catch((error) => {
        if (!isAbsent(error) && codeOf(error) !== 'EISDIR') throw sorted(error, root);
      });
    },
    async check() {
      const probe = join(temporary, `probe-${randomUUID()}`);
      try {
        await prepare();
        const file = await open(probe, 'wx');
        try {
          await file.writeFile(Buffer.alloc(1 << 16));
          await file.sync();
        } finally {
          await file.close();
        }
      } catch (error) {
        const reason = sorted(error, root);
        throw reason instanceof StorageUnavailable
          ? reason
          : new StorageUnavailable(`${root}: the directory does not work`, { cause: reason });
      } finally {
        await rm(probe, { force: true }).catch(() => {});
      }
    },
    async trust() {
      device = (await onDisk(stat(root))).dev;
    },
    async close() {},
  };
  // What is wrong with the directory now, `check` says, and every `put`.
  await prepare()
    .then(sweep)
    .catch(() => {});
  // What disk it is to be, the first use says: this may be the empty place of one that is still to be mounted.
  device = undefined;
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

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code ?? '';
const isAbsent = (error: unknown) => ['ENOENT', 'ENOTDIR'].includes(codeOf(error));

const words: Record<string, string> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'this process may not write there',
  EPERM: 'this process may not write there',
  EIO: 'the disk reports errors',
  ENOENT: 'the directory is not there any more',
  ENOTDIR: 'a file is in the way of the directory',
  EEXIST: 'a file is in the way of the directory',
};

function sorted(error: unknown, root: string): unknown {
  const word = words[codeOf(error)];
  return word ? new StorageUnavailable(`${root}: ${word}`, { cause: error }) : error;
}
