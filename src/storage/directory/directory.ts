import { randomUUID } from 'node:crypto';
import { constants, open, rm, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { addAbortSignal, type Readable } from 'node:stream';
import { StorageUnavailable } from '../../floor/errors.ts';
import type { Log } from '../../floor/log.ts';
import type { GetOptions, Storage } from '../storage.ts';
import { Drafts } from './drafts.ts';
import { classify, codeOf, isMissing } from './errors.ts';
import { keep } from './keep.ts';
import { Root } from './root.ts';
import { directoryUploads } from './uploads.ts';
import { walk } from './walk.ts';
import { write } from './write.ts';

/**
 * Objects as files below a directory. A file is written to a draft, synced to the disk and renamed to its path. The
 * rename is synced too, and so are removals. Content types and metadata are not stored: the record has what matters.
 */
export async function openDirectory(options: {
  path: string;
  contentHash?: boolean;
  touchMs?: number;
  /** Nothing is written to it, so it is not prepared for writes. */
  readOnly?: boolean;
  log?: Log;
}): Promise<Storage> {
  const root = new Root(options.path, options.contentHash ?? false);
  const drafts = new Drafts(root, options.touchMs);
  const uploads = directoryUploads(root, drafts);
  // If this fails, `check` and every `put` report it.
  if (!options.readOnly) await prepare(root, drafts, options.log).catch(() => {});
  // The disk may be mounted only later, so opening does not decide which one is right.
  root.forgetDisk();

  const remove = async (key: string) => {
    const file = root.fileOf(key);
    if (await root.otherInPlaceOf(key).catch(() => undefined)) return;
    const ignoreMissing = (error: unknown) => {
      if (!isMissing(error) && codeOf(error) !== 'EISDIR') throw classify(error, root.path);
    };
    await unlink(file).catch(ignoreMissing);
    // Also if it is missing: the process that removed it may have died before this.
    await root.syncPath(key).catch(ignoreMissing);
  };

  return {
    name: `file://${root.path}`,
    hashes: root.hashes,
    put: (key, body, put = {}) => write(root, drafts, key, body, put),
    uploads,
    async get(key, options = {}) {
      options.signal?.throwIfAborted();
      return read(root, key, options);
    },
    async head(key, { signal } = {}) {
      signal?.throwIfAborted();
      return root.describe(key);
    },
    list: (prefix, { signal } = {}) => walk(root, '', prefix, signal),
    keep: (key, as, options = {}) => keep(root, drafts, { key, as, ...options }),
    remove,
    async *purge(at, { signal, dryRun, fence } = {}) {
      for await (const { key, bytes } of walk(root, '', at, signal)) {
        if (!at.endsWith('/') && key !== at) continue;
        if (!dryRun) {
          await fence?.();
          await remove(key);
        }
        yield { key, bytes };
      }
    },
    async sweep(what) {
      await root.onDisk(root.prepare());
      await root.onDisk(drafts.sweep(what.olderThan));
      const abandoned = await drafts.abandonedUploads(what);
      for (const id of abandoned) await uploads.abort({ id, key: '' });
      return abandoned.size;
    },
    check: () => check(root, drafts),
    stamp: (key) => root.stamp(key),
    rememberDisk: () => root.rememberDisk(),
    async close() {
      drafts.close();
    },
  };
}

async function prepare(root: Root, drafts: Drafts, log: Log | undefined): Promise<void> {
  await root.prepare();
  await drafts.sweep();
  if (!(await root.ignoresCase())) return;
  log?.warn(
    { event: 'storage.case_ignored', directory: root.path },
    'the file system ignores case: of two assets whose keys differ only in case, the second one fails',
  );
}

async function read(root: Root, key: string, { signal, range, found }: GetOptions): Promise<Readable | undefined> {
  // Opening a pipe would wait for a writer.
  const file = await open(root.fileOf(key), constants.O_RDONLY | constants.O_NONBLOCK).catch(async (error) => {
    if (!isMissing(error)) throw classify(error, root.path);
    await root.checkMounted();
    return undefined;
  });
  const stats = await file?.stat().catch(async (error) => {
    await file.close();
    throw classify(error, root.path);
  });
  const isOther = found && (stats?.size !== found.bytes || stats.mtime.getTime() !== found.modified?.getTime());
  if (!stats?.isFile() || isOther) {
    await file?.close();
    return undefined;
  }
  const stream = file!.createReadStream(range && { start: range.first, end: range.last });
  return signal ? addAbortSignal(signal, stream) : stream;
}

/** See `Storage.check`. */
async function check(root: Root, drafts: Drafts): Promise<void> {
  const probe = join(root.drafts, `probe-${randomUUID()}`);
  try {
    await root.prepare();
    await drafts.sweep();
    await writeFile(probe, Buffer.alloc(1 << 16), { flag: 'wx', flush: true });
  } catch (error) {
    const reason = classify(error, root.path);
    throw reason instanceof StorageUnavailable
      ? reason
      : new StorageUnavailable(`${root.path}: the directory cannot be used`, { cause: reason });
  } finally {
    await rm(probe, { force: true }).catch(() => {});
  }
}
