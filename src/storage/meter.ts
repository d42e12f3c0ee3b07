import { createHash, type Hash } from 'node:crypto';
import { Transform, type TransformCallback } from 'node:stream';
import { crc32 } from 'node:zlib';

/**
 * Counts and sums what passes. The last chunk is held back until the source has ended well, so that a body which is too
 * short, too long or broken never arrives whole at the other end.
 */
export class Meter extends Transform {
  // Not `size`: lib-storage takes a body's `size` for its length.
  passed = 0;
  #crc = 0;
  readonly #md5: Hash | undefined;
  readonly #expected: number | undefined;
  #held: Buffer | undefined;

  constructor(options: { expected: number | undefined; md5: boolean }) {
    super({ highWaterMark: 1 << 16 });
    this.#expected = options.expected;
    this.#md5 = options.md5 ? createHash('md5') : undefined;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.passed += chunk.length;
    if (this.#expected !== undefined && this.passed > this.#expected) {
      done(new WrongLength(`the body goes on behind its ${this.#expected} bytes`));
      return;
    }
    this.#crc = crc32(chunk, this.#crc);
    this.#md5?.update(chunk);
    const before = this.#held;
    this.#held = chunk;
    done(null, before);
  }

  override _flush(done: TransformCallback): void {
    if (this.#expected !== undefined && this.passed !== this.#expected) {
      done(new WrongLength(`the body ended at byte ${this.passed} of ${this.#expected}`));
      return;
    }
    done(null, this.#held);
  }

  /** Once the body has ended: lower-case hex. */
  checksums(): { crc32: string; md5?: string } {
    const sum = { crc32: this.#crc.toString(16).padStart(8, '0') };
    return this.#md5 ? { ...sum, md5: this.#md5.digest('hex') } : sum;
  }
}

/** A body that is not as long as was declared. */
export class WrongLength extends Error {
  override readonly name = 'WrongLength';
}
