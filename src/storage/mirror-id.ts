import { Readable } from 'node:stream';
import { StorageUnavailable } from '../errors.ts';
import { unlessAborted } from './abort.ts';
import { bucketIdKey } from './keys.ts';
import type { Storage } from './storage.ts';

/** How long a check of the mirror id is valid where each check costs a request. */
const recentMs = 10_000;

/**
 * A storage that works only while it carries the mirror id that the records know. So a disk that is not mounted, an emptied
 * or replaced bucket and a mistaken STORAGE_URL are neither written to nor believed to have lost everything.
 *
 * The id is checked before every operation: by the stamp of its file in a directory, by reading it again when the last
 * check is older than 10 s elsewhere. It is read again after every error that makes the whole store unavailable.
 *
 * `check` reads the id, and writes only after a write has failed: it is called every few seconds, and where versions are
 * locked each write would stay.
 *
 * `settle` returns the id in the records, or stores the one it is given. New records take a bucket that has an id already
 * only with `adopt`. `onWrong` is called once whenever the id turns out to be missing or another: objects written since the
 * last check may be in the wrong place.
 */
export function identified(
  storage: Storage,
  settle: (find: (proposed: string) => Promise<string>) => Promise<string>,
  options: { adopt?: boolean; onWrong?: () => Promise<void> } = {},
): Storage {
  let id: string | undefined;
  /** The last successful check; undefined before it, and while it is in doubt. */
  let confirmed: { at: number; stamp: string | undefined } | undefined;
  let checking: Promise<void> | undefined;
  let reported = false;
  /** The last write failed for the whole store. `check` then writes too, until that succeeds. */
  let writesFail = false;

  async function read(): Promise<string | undefined> {
    const body = await storage.get(bucketIdKey);
    if (!body) return undefined;
    let text = '';
    for await (const chunk of body) {
      text += chunk;
      if (text.length > 200) break;
    }
    return text.trim().slice(0, 200);
  }

  /** Writes the id to the bucket before the records have it, so that they never name an id that does not exist. */
  async function find(proposed: string): Promise<string> {
    const found = await read();
    if (found === undefined || found === '') {
      await storage.put(bucketIdKey, `${proposed}\n`, { contentType: 'text/plain' });
      return proposed;
    }
    if (found === proposed || options.adopt) return found;
    throw new StorageUnavailable(
      `${storage.name}: is a mirror already, and the records are new: its object ${bucketIdKey} says ${found}, and they ` +
        'know of none. If the database was lost, `asset-mirror rebuild` gives the records back from the bucket. ' +
        'If not, are DATABASE_URL and STORAGE_URL right? Each mirror needs a bucket or a prefix of its own',
    );
  }

  async function checkId(): Promise<void> {
    id ??= await settle(find);
    // Taken before the id is read, so a replacement in between is noticed by the next operation.
    const now = { at: performance.now(), stamp: await storage.stamp?.(bucketIdKey) };
    const found = await read();
    if (found === id) {
      await storage.trust?.();
      confirmed = now;
      reported = false;
      return;
    }
    if (!reported) {
      reported = true;
      // A report that fails is repeated by the next check.
      await options.onWrong?.().catch(() => {
        reported = false;
      });
    }
    const what = found ? `its object ${bucketIdKey} says ${found}` : `there is no object ${bucketIdKey}`;
    throw new StorageUnavailable(
      `${storage.name}: not the bucket that the records are about: ${what}, and they know it as ${id}. ` +
        'Is the disk mounted, is STORAGE_URL right? ' +
        `If it was emptied or replaced on purpose, put an object ${bucketIdKey} there with this content: ${id}`,
    );
  }

  /** Checks the id now; callers at the same time share one check. */
  function confirm(): Promise<void> {
    checking ??= checkId()
      .catch((error) => {
        confirmed = undefined;
        throw error;
      })
      .finally(() => {
        checking = undefined;
      });
    return checking;
  }

  async function confirmUnlessRecent(): Promise<void> {
    const stamp = await storage.stamp?.(bucketIdKey);
    // Read after the await: another caller's check may have failed meanwhile.
    const recent =
      confirmed &&
      (storage.stamp ? stamp !== undefined && stamp === confirmed.stamp : performance.now() - confirmed.at < recentMs);
    if (!recent) await confirm();
  }

  /** Returns when the id is known to be right. An abort, or an error of the body, ends the wait. */
  async function ready(signal?: AbortSignal, body?: Readable): Promise<void> {
    const { promise: broken, reject } = Promise.withResolvers<never>();
    broken.catch(() => {});
    body?.on('error', reject);
    try {
      await unlessAborted(Promise.race([broken, confirmUnlessRecent()]), signal);
    } catch (error) {
      body?.destroy();
      throw error;
    }
  }

  /** After an error of the whole store, another store may be in its place: the id is read again. */
  function doubt(error: unknown): never {
    if (error instanceof StorageUnavailable && error.scope === 'all') confirmed = undefined;
    throw error;
  }

  function doubtWrites(error: unknown): never {
    if (error instanceof StorageUnavailable && error.scope === 'all') writesFail = true;
    return doubt(error);
  }

  return {
    name: storage.name,
    async put(key, body, options = {}) {
      // The caller may change its buffer while the id is checked.
      const content = Buffer.isBuffer(body) ? Buffer.from(body) : body;
      await ready(options.signal, content instanceof Readable ? content : undefined);
      return storage.put(key, content, options).catch(doubtWrites);
    },
    uploads: {
      async begin(key, options) {
        await ready(options.signal);
        return storage.uploads.begin(key, options).catch(doubtWrites);
      },
      async put(upload, number, body, options = {}) {
        await ready(options.signal, body);
        return storage.uploads.put(upload, number, body, options).catch(doubtWrites);
      },
      async list(upload, options = {}) {
        await ready(options.signal);
        return storage.uploads.list(upload, options).catch(doubt);
      },
      async complete(upload, parts, options = {}) {
        await ready(options.signal);
        return storage.uploads.complete(upload, parts, options).catch(doubtWrites);
      },
      async abort(upload) {
        await ready();
        return storage.uploads.abort(upload).catch(doubt);
      },
    },
    async get(key, options = {}) {
      await ready(options.signal);
      return storage.get(key, options).catch(doubt);
    },
    async head(key, options = {}) {
      await ready(options.signal);
      return storage.head(key, options).catch(doubt);
    },
    async *list(prefix, options = {}) {
      await ready(options.signal);
      try {
        yield* storage.list(prefix, options);
      } catch (error) {
        doubt(error);
      }
    },
    async remove(key) {
      await ready();
      return storage.remove(key).catch(doubtWrites);
    },
    async sweep(what) {
      await ready(what.signal);
      return storage.sweep(what).catch(doubt);
    },
    async check() {
      await confirm().catch((error) => {
        if (error instanceof StorageUnavailable) throw error;
        throw new StorageUnavailable(`${storage.name}: cannot tell whether it is the right bucket`, { cause: error });
      });
      if (!writesFail) return;
      await storage.check().catch(doubt);
      writesFail = false;
    },
    close: () => storage.close(),
  };
}
