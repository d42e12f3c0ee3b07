import { Readable } from 'node:stream';
import { StorageUnavailable } from '../errors.ts';
import { bucketIdKey } from './keys.ts';
import type { Storage } from './storage.ts';

/**
 * A storage that is used only while it is the one that the records are about: it carries an id which they know. So a disk
 * that is not mounted, an emptied bucket or a mistaken STORAGE_URL is neither written to nor taken for one in which
 * everything is missing. Looked at before the first use, at each `check`, and after whatever made it unavailable.
 *
 * `settle` gives the id that the records know, or when they know none remembers the one that it is handed. New records
 * take a bucket that has an id already only with `adopt`: it is another mirror's, or that of records which were lost.
 */
export function identified(
  storage: Storage,
  settle: (find: (proposed: string) => Promise<string>) => Promise<string>,
  options: { adopt?: boolean } = {},
): Storage {
  let id: string | undefined;
  let right = false;
  let looking: Promise<void> | undefined;

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

  /** In the bucket before it is in the records: they never know an id that is nowhere. */
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

  async function look(): Promise<void> {
    id ??= await settle(find);
    const found = await read();
    if (found !== id) {
      const what = found ? `its object ${bucketIdKey} says ${found}` : `there is no object ${bucketIdKey}`;
      throw new StorageUnavailable(
        `${storage.name}: not the bucket that the records are about: ${what}, and they know it as ${id}. ` +
          'Is the disk mounted, is STORAGE_URL right? ' +
          `If it was emptied or replaced on purpose, put an object ${bucketIdKey} there with this content: ${id}`,
      );
    }
    await storage.trust?.();
  }

  /** One look at a time, whoever asks. */
  function confirm(): Promise<void> {
    looking ??= look()
      .then(
        () => {
          right = true;
        },
        (error) => {
          right = false;
          throw error;
        },
      )
      .finally(() => {
        looking = undefined;
      });
    return looking;
  }

  /** An abort, or a body that breaks, ends the wait. */
  async function ready(signal?: AbortSignal, body?: Readable): Promise<void> {
    if (right) return;
    const { promise: broken, reject } = Promise.withResolvers<never>();
    broken.catch(() => {});
    const stop = () => reject(signal!.reason);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
    body?.on('error', reject);
    try {
      await Promise.race([broken, confirm()]);
    } catch (error) {
      body?.destroy();
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  /** What makes the whole store unavailable may also have put another in its place. */
  function doubt(error: unknown): never {
    if (error instanceof StorageUnavailable && error.scope === 'all') right = false;
    throw error;
  }

  return {
    name: storage.name,
    async put(key, body, options = {}) {
      if (!right) await ready(options.signal, body instanceof Readable ? body : undefined);
      return storage.put(key, body, options).catch(doubt);
    },
    uploads: {
      async begin(key, options) {
        await ready(options.signal);
        return storage.uploads.begin(key, options).catch(doubt);
      },
      async put(upload, number, body, options = {}) {
        if (!right) await ready(options.signal, body);
        return storage.uploads.put(upload, number, body, options).catch(doubt);
      },
      async list(upload, options = {}) {
        await ready(options.signal);
        return storage.uploads.list(upload, options).catch(doubt);
      },
      async complete(upload, parts, options = {}) {
        await ready(options.signal);
        return storage.uploads.complete(upload, parts, options).catch(doubt);
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
      return storage.remove(key).catch(doubt);
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
      await storage.check().catch(doubt);
    },
    close: () => storage.close(),
  };
}
