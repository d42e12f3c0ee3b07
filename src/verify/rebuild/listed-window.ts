import type { Storage, StoredObject } from '../../storage/storage.ts';

/** How many objects `trim` keeps. */
const kept = 1000;

/**
 * The objects that were listed last, by key. An asset's objects are listed side by side, so nearly all lookups are answered
 * from here, including those of missing objects; the others are requests to the bucket.
 */
export class ListedWindow {
  readonly #storage: Storage;
  readonly #signal: AbortSignal;
  readonly #objects = new Map<string, StoredObject>();
  #from = Buffer.alloc(0);
  #to: Buffer | undefined;
  #last = '';

  constructor(storage: Storage, signal: AbortSignal) {
    this.#storage = storage;
    this.#signal = signal;
  }

  get size(): number {
    return this.#objects.size;
  }

  add(object: StoredObject): void {
    this.#objects.set(object.key, object);
    this.#last = object.key;
    this.#to = undefined;
  }

  /** The listing has ended: no object follows the last one. */
  complete(): void {
    this.#last = '\u{10FFFF}';
    this.#to = undefined;
  }

  /** Forgets all but the objects that were listed last. */
  trim(): void {
    for (const key of this.#objects.keys()) {
      if (this.#objects.size <= kept) {
        this.#from = Buffer.from(key);
        break;
      }
      this.#objects.delete(key);
    }
  }

  async find(key: string): Promise<StoredObject | undefined> {
    const here = this.#objects.get(key);
    if (here) return here;
    this.#to ??= Buffer.from(this.#last);
    const bytes = Buffer.from(key);
    const wasListed = Buffer.compare(bytes, this.#from) >= 0 && Buffer.compare(bytes, this.#to) <= 0;
    return wasListed ? undefined : this.#storage.head(key, { signal: this.#signal });
  }
}
