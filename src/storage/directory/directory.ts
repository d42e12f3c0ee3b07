import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat, statfs, unlink, utimes } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { addAbortSignal, Readable } from 'node:stream';
import { Rejected, StorageUnavailable } from '../../errors.ts';
import { exists } from '../../files.ts';
import type { Log } from '../../log.ts';
import { metered } from '../meter.ts';
import type { OpenUpload, PutOptions, Storage, Stored, StoredObject } from '../storage.ts';
import { caseCheck, ignoresCase } from './letter-case.ts';
import { type Claim, directoryUploads } from './uploads.ts';

/** Holds files under way; never listed, and swept when the store is opened. */
export const draftFolder = '.asset-mirror-tmp';

/** A draft that was not touched for this long belongs to a process that died. */
const abandonedMs = 60 * 60 * 1000;
/** An upload in parts outlasts its process: whoever goes on with it may have to wait first. */
const abandonedUploadMs = 7 * 24 * 60 * 60 * 1000;
/** How often a process touches its drafts: a body may be slow, and come to rest for as long as the caller likes. */
const touchMs = 10 * 60 * 1000;

/** Smaller bodies are written without asking for free space first: that would take longer than the write. */
const large = 4 * 2 ** 20;
/** Free space that stays reserved for records and other small objects. */
const spare = 2 ** 20;

/**
 * Objects as files below a directory. A file is written beside, synced to the disk, then renamed into its place, and the
 * rename is synced too. Content types and metadata have no place in a file: the record beside it holds what matters.
 */
export async function openDirectory(options: { path: string; touchMs?: number; log?: Log }): Promise<Storage> {
  const root = options.path;
  const temporary = join(root, draftFolder);
  const fileOf = (key: string) => {
    const segments = key.split('/');
    if (segments.some((s) => s === '' || s === '.' || s === '..' || s.includes('\0')) || segments[0] === draftFolder) {
      throw new Error(`not a key: ${JSON.stringify(key)}`);
    }
    return join(root, key);
  };

  /** Classifies the errors of file system calls; errors of a body must not pass through here. */
  async function onDisk<T>(work: Promise<T>): Promise<T> {
    return work.catch((error) => {
      throw classify(error, root);
    });
  }

  let made = false;
  let device: number | undefined;
  /** Makes the root, once: if it is gone later, its disk may be unmounted, and must not be replaced by a new directory. */
  async function make(): Promise<void> {
    if (!made) await mkdir(root, { recursive: true });
    made = true;
  }

  /** @throws if another disk is mounted than before: files written below an empty mount point would be hidden later */
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
    const source = body instanceof Readable ? body : Readable.from([Buffer.from(body)], { objectMode: false });
    const { promise: ready, resolve: start } = Promise.withResolvers<undefined>();
    const meter = metered(source, { expected: put.bytes, fence: put.fence, signal: put.signal, ready });
    const draft = join(temporary, randomUUID());
    const claim = { draft, bytes: put.bytes ?? 0, meter };
    try {
      put.signal?.throwIfAborted();
      const target = fileOf(key);
      await onDisk(prepare());
      underWay.add(claim);
      await onDisk(makeRoomFor(claim, key));
      const file = await onDisk(open(draft, 'wx'));
      try {
        start(undefined);
        for await (const chunk of meter) await onDisk(file.writeFile(chunk));
        await onDisk(file.sync());
        const { size } = await onDisk(file.stat());
        if (size !== meter.passed) throw new Error(`store ${key}: the file has ${size} bytes of ${meter.passed}`);
      } finally {
        await file.close();
      }
      put.signal?.throwIfAborted();
      await onDisk(place(draft, target, key));
      return { key, bytes: meter.passed, etag: undefined, checksums: meter.checksums() };
    } catch (error) {
      await rm(draft, { force: true }).catch(() => {});
      underWay.delete(claim);
      put.signal?.throwIfAborted();
      throw meter.bodyError ?? (await noRoomFor(key, error)) ?? error;
    } finally {
      underWay.delete(claim);
      source.destroy();
    }
  }

  /** Bodies on their way to the disk. */
  const underWay = new Set<Claim>();

  /** What the disk has left, without what is still to come of bodies under way. */
  async function room(): Promise<number> {
    const { bavail, bsize, files, ffree } = await statfs(root);
    if (files > 0 && ffree === 0) return 0;
    let left = bavail * bsize;
    for (const { bytes, meter } of underWay) left -= Math.max(0, bytes - meter.passed);
    return left;
  }

  const letterCase = caseCheck(root);
  /** Of the disk `device`. */
  let folds: { device: number | undefined; names: boolean } | undefined;

  async function foldsNames(): Promise<boolean> {
    if (!folds || folds.device !== device) folds = { device, names: await ignoresCase(temporary) };
    return folds.names;
  }

  /** What is in the place of a key on a file system that ignores case: the file or directory of another key. */
  async function otherInPlaceOf(key: string): Promise<string | undefined> {
    return (await foldsNames()) ? letterCase.other(key) : undefined;
  }

  async function refuseOther(key: string): Promise<void> {
    const other = await otherInPlaceOf(key);
    if (other === undefined) return;
    throw new Rejected(
      `store ${key}: ${other} differs only in case, and this file system ignores case; move the mirror to one that does not`,
    );
  }

  async function makeRoomFor(claim: { bytes: number }, key: string): Promise<void> {
    await refuseOther(key);
    if (claim.bytes < large || (await room()) >= spare) return;
    await sweep();
    const left = (await room()) + claim.bytes;
    if (left - claim.bytes >= spare) return;
    throw new StorageUnavailable(
      `${root}: no room for ${key}: it has ${mebibytes(claim.bytes)}, and ${mebibytes(Math.max(0, left - spare))} are free`,
      { scope: 'object' },
    );
  }

  /** The error to throw if the disk is full for this object, but still has space for smaller ones. */
  async function noRoomFor(key: string, error: unknown): Promise<StorageUnavailable | undefined> {
    if (!(error instanceof StorageUnavailable) || codeOf(error.cause) !== 'ENOSPC') return undefined;
    await sweep().catch(() => {});
    const left = await room().catch(() => 0);
    if (left < spare) return undefined;
    return new StorageUnavailable(`${error.message}, but for smaller objects than ${key}`, {
      scope: 'object',
      cause: error.cause,
    });
  }

  /** The rename, and every directory made for it, are on the disk when this returns. */
  async function place(draft: string, target: string, key: string): Promise<void> {
    const folder = dirname(target);
    try {
      const first = await mkdir(folder, { recursive: true });
      await refuseOther(key);
      await rename(draft, target);
      for (let at = folder; ; at = dirname(at)) {
        await syncDirectory(at);
        if (!first || at === dirname(first)) return;
      }
    } catch (error) {
      // These concern only this object, not the store.
      const code = codeOf(error);
      if (['EEXIST', 'ENOTDIR', 'EISDIR', 'ENOTEMPTY', 'ELOOP'].includes(code)) {
        throw new Error(`store ${key}: a file or directory is in its place`, { cause: error });
      }
      if (code === 'ENAMETOOLONG') {
        throw new Rejected(`store ${key}: the name is too long for this file system; shorten KEY_TEMPLATE or the path`);
      }
      if (code === 'EILSEQ' || code === 'EINVAL') {
        throw new Rejected(`store ${key}: this file system does not take such a name`, { cause: error });
      }
      if (code === 'ENOENT' && !(await exists(draft)) && (await exists(temporary))) {
        throw new Error(`store ${key}: its draft was removed before it was done`, { cause: error });
      }
      throw error;
    }
  }

  async function* walk(folder: string, prefix: string, signal?: AbortSignal): AsyncGenerator<StoredObject> {
    const entries = await readdir(folder === '' ? root : join(root, folder), { withFileTypes: true }).catch(
      async (error) => {
        if (folder === '' || codeOf(error) !== 'ENOENT') throw classify(error, root);
        await absent();
        return [];
      },
    );
    const named = entries
      .filter((entry) => !(folder === '' && entry.name === draftFolder))
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
      if (!isAbsent(error)) throw classify(error, root);
      await absent();
      return undefined;
    }
  }

  /** @throws if the disk is away: only with the disk mounted does a missing file mean that there is no object */
  async function absent(): Promise<void> {
    await onDisk(make().then(sameDisk));
  }

  /**
   * Removes abandoned drafts. Other processes may be at work here: what is under way is touched, by each of them. `given`:
   * a draft that is no upload in parts and older than this is abandoned as well.
   */
  async function sweep(given = new Date(0)): Promise<void> {
    const mine = new Set([...underWay].map(({ draft }) => draft));
    for (const name of await readdir(temporary)) {
      const draft = join(temporary, name);
      const touched = await stat(draft).catch(() => undefined);
      if (!touched || mine.has(draft)) continue;
      const inParts = /\.(upload|parts)$/.test(name);
      const patience = inParts ? abandonedUploadMs : abandonedMs;
      if (Date.now() - touched.mtimeMs < patience && (inParts || touched.mtime >= given)) continue;
      await rm(draft, { force: true });
    }
  }

  /** Uploads in parts by their drafts and lines. Each part that is stored touches one of the two at least. */
  async function openUploads(): Promise<(OpenUpload & { begun: Date })[]> {
    const touched = new Map<string, Date>();
    for (const name of await readdir(temporary)) {
      const id = /^(.+)\.(upload|parts)$/.exec(name)?.[1];
      const { mtime } = (id && (await stat(join(temporary, name)).catch(() => undefined))) || {};
      if (id && mtime && mtime > (touched.get(id) ?? new Date(0))) touched.set(id, mtime);
    }
    return [...touched].map(([id, begun]) => ({ id, begun }));
  }

  const timer = setInterval(async () => {
    const now = new Date();
    for (const { draft } of underWay) await utimes(draft, now, now).catch(() => {});
    await sweep().catch(() => {});
  }, options.touchMs ?? touchMs).unref();

  const storage: Storage = {
    name: `file://${root}`,
    put: (key, body, put = {}) => write(key, body, put),
    uploads: directoryUploads({
      temporary,
      prepare,
      onDisk,
      fileOf,
      place,
      describe,
      makeRoomFor,
      noRoomFor,
      underWay,
    }),
    async get(key, { signal } = {}) {
      signal?.throwIfAborted();
      const file = await open(fileOf(key), 'r').catch(async (error) => {
        if (!isAbsent(error)) throw classify(error, root);
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
      const file = fileOf(key);
      if (await otherInPlaceOf(key).catch(() => undefined)) return;
      await unlink(file).catch((error) => {
        if (!isAbsent(error) && codeOf(error) !== 'EISDIR') throw classify(error, root);
      });
    },
    async sweep({ olderThan, strays, signal }) {
      await onDisk(prepare());
      await onDisk(sweep(olderThan));
      const mine = new Set([...underWay].map(({ draft }) => draft));
      const old = (await onDisk(openUploads())).filter(
        ({ id, begun }) => begun < olderThan && !mine.has(join(temporary, `${id}.upload`)),
      );
      signal?.throwIfAborted();
      // Everything here is ours.
      const given = await strays(old, { shared: false });
      for (const id of given) await storage.uploads.abort({ id, key: '' });
      return given.size;
    },
    async check() {
      const probe = join(temporary, `probe-${randomUUID()}`);
      try {
        await prepare();
        await sweep();
        const file = await open(probe, 'wx');
        try {
          await file.writeFile(Buffer.alloc(1 << 16));
          await file.sync();
        } finally {
          await file.close();
        }
      } catch (error) {
        const reason = classify(error, root);
        throw reason instanceof StorageUnavailable
          ? reason
          : new StorageUnavailable(`${root}: the directory does not work`, { cause: reason });
      } finally {
        await rm(probe, { force: true }).catch(() => {});
      }
    },
    async stamp(key) {
      try {
        const [place, file] = await Promise.all([stat(root), stat(fileOf(key), { bigint: true })]);
        // A directory made anew may get the inode of the one before; a file made anew has another time of change.
        return `${place.dev}:${place.ino} ${file.dev}:${file.ino}:${file.ctimeNs}`;
      } catch (error) {
        if (isAbsent(error)) return undefined;
        throw classify(error, root);
      }
    },
    async trust() {
      device = (await onDisk(stat(root))).dev;
    },
    async close() {
      clearInterval(timer);
    },
  };
  // If this fails, `check` and every `put` report it.
  try {
    await prepare();
    await sweep();
    if (await foldsNames()) {
      options.log?.warn(
        { directory: root },
        'the file system ignores case: of two assets whose keys differ only in case, the second one fails',
      );
    }
  } catch {}
  // The first use decides which disk is the right one: it may not be mounted yet.
  device = undefined;
  return storage;
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync().catch((error) => {
      // Some file systems cannot sync a directory.
      if (!['EINVAL', 'ENOTSUP'].includes(codeOf(error))) throw error;
    });
  } finally {
    await handle.close();
  }
}

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException | undefined)?.code ?? '';
const isAbsent = (error: unknown) => ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'].includes(codeOf(error));
const mebibytes = (bytes: number) => `${Math.round(bytes / 2 ** 20).toLocaleString('en')} MiB`;

const words: Record<string, string> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'this process may not write there',
  EPERM: 'this process may not write there',
  EIO: 'the disk reports errors',
  EREMOTEIO: 'the disk reports errors',
  ENODEV: 'the disk is gone',
  ENXIO: 'the disk is gone',
  ENOTCONN: 'the file system is not connected any more; mount it again',
  ESHUTDOWN: 'the file system is not connected any more; mount it again',
  ESTALE: 'the network file system has lost the directory; mount it again',
  ETIMEDOUT: 'the network file system does not answer',
  EHOSTDOWN: 'the network file system does not answer',
  EHOSTUNREACH: 'the network file system does not answer',
  EMFILE: 'this process has as many files open as it may; raise its limit (ulimit -n)',
  ENFILE: 'this machine has as many files open as it can',
  ENOENT: 'the directory is not there any more',
  ENOTDIR: 'a file is in the way of the directory',
  EEXIST: 'a file is in the way of the directory',
};

/** An error of the file system as one of the classes of errors.ts, if it concerns the whole directory; else unchanged. */
function classify(error: unknown, root: string): unknown {
  if (codeOf(error) === 'EFBIG') return new Rejected(`${root}: the file is larger than this file system takes`);
  const word = words[codeOf(error)];
  return word ? new StorageUnavailable(`${root}: ${word}`, { cause: error }) : error;
}
