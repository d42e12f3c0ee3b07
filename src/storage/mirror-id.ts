import { Readable } from 'node:stream';
import { RetryLater, StorageUnavailable } from '../floor/errors.ts';
import { unlessAborted } from './abort.ts';
import { bucketIdKey } from './keys.ts';
import { type Storage, UploadLost } from './storage.ts';

/** How long a check of the mirror id is valid if each check costs a request. */
const recentMs = 10_000;

/**
 * Returns the mirror id in the database. If there is none, saves the result of `readOrWrite`, which returns the id in the bucket,
 * or writes the proposed one.
 */
type RecordedId = (readOrWrite: (proposed: string) => Promise<string>) => Promise<string>;
interface IdOptions {
  /** Accepts a bucket that has an id already, although the database is new. */
  adopt?: boolean;
  /** Called once when the id is missing or another one: objects written since the last check may be in the wrong bucket. */
  onWrong?: () => Promise<void>;
}

/**
 * A storage that works only while it has the mirror id of the records. So nothing is written to an unmounted disk, a replaced
 * bucket or a wrong STORAGE_URL, and none of them counts as a bucket that has lost everything.
 *
 * The id is checked before every operation: in a directory by the stamp of its file, elsewhere by reading it if the last
 * check is older than 10 s. It is read again after every error that makes the whole store unavailable.
 */
export function withMirrorIdCheck(storage: Storage, recordedId: RecordedId, options: IdOptions = {}): Storage {
  const id = new MirrorId(storage, recordedId, options);
  const { uploads, lock } = storage;
  return {
    name: storage.name,
    hashes: storage.hashes,
    put(key, body, options = {}) {
      // The caller may change its buffer while the id is checked.
      const content = Buffer.isBuffer(body) ? Buffer.from(body) : body;
      const stream = body instanceof Readable ? body : undefined;
      return id.writing(() => storage.put(key, content, options), options.signal, stream);
    },
    uploads: {
      begin: (key, options) => id.writing(() => uploads.begin(key, options), options.signal),
      put: (upload, number, body, options) =>
        id.writing(() => uploads.put(upload, number, body, options), options?.signal, body),
      list: (upload, options) => id.foundOrConfirmed(() => uploads.list(upload, options), options?.signal),
      complete: (upload, parts, options) => id.writing(() => uploads.complete(upload, parts, options), options?.signal),
      abort: (upload) => id.reading(() => uploads.abort(upload)),
    },
    get: (key, options) => id.foundOrConfirmed(() => storage.get(key, options), options?.signal),
    links: storage.links,
    head: (key, options) => id.foundOrConfirmed(() => storage.head(key, options), options?.signal),
    list: (prefix, options) => id.listing(() => storage.list(prefix, options), options?.signal),
    async keep(key, as, options) {
      const kept = await id.writing(() => storage.keep(key, as, options), options?.signal);
      if (kept === undefined) await id.confirmNow();
      return kept;
    },
    remove: (key, options) => id.writing(() => storage.remove(key, options)),
    lock: lock && { ...lock, extend: (...args) => id.writing(() => lock.extend(...args)) },
    async *purge(at, options = {}) {
      yield* id.listing(() => storage.purge(at, options), options.signal);
      await id.confirmNow();
    },
    sweep: (what) => id.reading(() => storage.sweep(what), what.signal),
    check: () => id.check(),
    close: () => storage.close(),
  };
}

const isOfWholeStore = (error: unknown) => error instanceof StorageUnavailable && error.scope === 'all';

class MirrorId {
  readonly #storage: Storage;
  readonly #recordedId: RecordedId;
  readonly #options: IdOptions;
  #id: string | undefined;
  /** The last successful check; undefined before it, and while it is in doubt. */
  #confirmed: { at: number; stamp: string | undefined } | undefined;
  #checking: Promise<void> | undefined;
  #reported = false;
  /** The last write failed, perhaps for the whole store. `check` then writes too, until that succeeds. */
  #writesFail = false;

  constructor(storage: Storage, recordedId: RecordedId, options: IdOptions) {
    this.#storage = storage;
    this.#recordedId = recordedId;
    this.#options = options;
  }

  /** Returns when the id is known to be right. An abort, or an error of the body, ends the wait. */
  async #ready(signal?: AbortSignal, body?: Readable): Promise<void> {
    const { promise: broken, reject } = Promise.withResolvers<never>();
    broken.catch(() => {});
    body?.on('error', reject);
    try {
      await unlessAborted(Promise.race([broken, this.#confirmUnlessRecent()]), signal);
    } catch (error) {
      body?.destroy();
      throw error;
    }
  }

  /** The error to throw. If it is one of the whole store, that may have been replaced by another one: the id is read again. */
  #afterError(error: unknown): unknown {
    if (isOfWholeStore(error)) this.#confirmed = undefined;
    return error;
  }

  async reading<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    await this.#ready(signal);
    return work().catch((error) => {
      throw this.#afterError(error);
    });
  }

  async *listing<T>(work: () => AsyncIterable<T>, signal: AbortSignal | undefined): AsyncGenerator<T> {
    await this.#ready(signal);
    try {
      yield* work();
    } catch (error) {
      throw this.#afterError(error);
    }
  }

  /** If nothing is found, the id is read again: a proxy in front of a store that restarts answers 404, too. */
  async foundOrConfirmed<T>(work: () => Promise<T | undefined>, signal?: AbortSignal): Promise<T | undefined> {
    const found = await this.reading(work, signal);
    if (found === undefined) await this.confirmNow();
    return found;
  }

  async writing<T>(work: () => Promise<T>, signal?: AbortSignal, body?: Readable): Promise<T> {
    await this.#ready(signal, body);
    return work().catch(async (error) => {
      if (error instanceof UploadLost) await this.confirmNow();
      const isRefused = error instanceof RetryLater && error.reason.code === 'object_refused';
      if (isOfWholeStore(error) || isRefused) this.#writesFail = true;
      throw this.#afterError(error);
    });
  }

  /** Writes only after a write has failed: it is called every few seconds, and each write may leave a version that is locked. */
  async check(): Promise<void> {
    const { name } = this.#storage;
    await this.confirmNow().catch((error) => {
      if (error instanceof StorageUnavailable) throw error;
      throw new StorageUnavailable(`${name}: cannot check whether it is the right bucket`, { cause: error });
    });
    if (!this.#writesFail) return;
    await this.#storage.check().catch((error) => {
      throw this.#afterError(error);
    });
    this.#writesFail = false;
  }

  async #confirmUnlessRecent(): Promise<void> {
    const stamp = await this.#storage.stamp?.(bucketIdKey);
    // Read after the await: another caller's check may have failed meanwhile.
    const confirmed = this.#confirmed;
    const recent =
      confirmed &&
      (this.#storage.stamp
        ? stamp !== undefined && stamp === confirmed.stamp
        : performance.now() - confirmed.at < recentMs);
    if (!recent) await this.#confirm();
  }

  /** A check that is running may have read the id too early: before the caller read the objects that it asks about. */
  async confirmNow(): Promise<void> {
    await this.#checking?.catch(() => {});
    await this.#confirm();
  }

  /** Checks the id now; callers at the same time share one check. */
  #confirm(): Promise<void> {
    this.#checking ??= this.#checkId()
      .catch((error) => {
        this.#confirmed = undefined;
        throw error;
      })
      .finally(() => {
        this.#checking = undefined;
      });
    return this.#checking;
  }

  async #checkId(): Promise<void> {
    this.#id ??= await this.#recordedId((proposed) => this.#readOrWrite(proposed));
    // Taken before the id is read, so a replacement in between is noticed by the next operation.
    const now = { at: performance.now(), stamp: await this.#storage.stamp?.(bucketIdKey) };
    const found = await this.#read();
    if (found === this.#id) {
      await this.#storage.rememberDisk?.();
      this.#confirmed = now;
      this.#reported = false;
      return;
    }
    if (!this.#reported) {
      this.#reported = true;
      // A report that fails is repeated by the next check.
      await this.#options.onWrong?.().catch(() => {
        this.#reported = false;
      });
    }
    const what = found ? `its object ${bucketIdKey} says ${found}` : `there is no object ${bucketIdKey}`;
    throw new StorageUnavailable(
      `${this.#storage.name}: not the bucket of this database: ${what}; the database expects ${this.#id}. ` +
        'Check that the disk is mounted, and STORAGE_URL. ' +
        `If it was emptied or replaced on purpose, put an object ${bucketIdKey} there with this content: ${this.#id}`,
    );
  }

  /** Writes the id to the bucket before the records have it, so that they never name an id that does not exist. */
  async #readOrWrite(proposed: string): Promise<string> {
    const found = await this.#read();
    if (found === undefined || found === '') {
      await this.#storage.put(bucketIdKey, `${proposed}\n`, { contentType: 'text/plain' });
      return proposed;
    }
    if (found === proposed || this.#options.adopt) return found;
    throw new StorageUnavailable(
      `${this.#storage.name}: belongs to a mirror already, and the database is new: its object ${bucketIdKey} says ${found}. ` +
        'If the database was lost, `asset-mirror rebuild` restores the records from the bucket. ' +
        'If not, check DATABASE_URL and STORAGE_URL: each mirror needs its own bucket or prefix',
    );
  }

  async #read(): Promise<string | undefined> {
    const body = await this.#storage.get(bucketIdKey);
    if (!body) return undefined;
    let text = '';
    for await (const chunk of body) {
      text += chunk;
      if (text.length > 200) break;
    }
    return text.trim().slice(0, 200);
  }
}
