import { createHash, randomBytes } from 'node:crypto';

/** A Set holds at most 2^24 values. */
const shards = 64;

/** Many keys in little memory. Salted hashes, so that nobody can construct a collision. */
export class KeySet {
  readonly #salt = randomBytes(16);
  readonly #hashes = Array.from({ length: shards }, () => new Set<number>());

  add(key: string): void {
    const hash = this.#hash(key);
    this.#hashes[hash % shards]!.add(hash);
  }

  has(key: string): boolean {
    const hash = this.#hash(key);
    return this.#hashes[hash % shards]!.has(hash);
  }

  #hash(key: string): number {
    return createHash('sha256').update(this.#salt).update(key).digest().readUIntBE(0, 6);
  }
}
