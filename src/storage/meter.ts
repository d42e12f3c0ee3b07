import { createHash, type Hash } from 'node:crypto';
import { Readable, Transform, type TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { crc32, hexOf } from './crc32.ts';

/** What is known of a body, once it is whole. */
export interface Sums {
  /** Bytes. */
  passed: number;
  /** The ETag of a store that makes it of MD5: of the body, or of the sums of its parts. */
  etag: string | undefined;
  /** Lower-case hex. */
  checksums(): { crc32: string; md5?: string };
}

/** Of bytes at hand. */
export function sumsOf(body: Buffer, { md5 }: { md5: boolean }): Sums {
  const sum = md5 ? createHash('md5').update(body).digest('hex') : undefined;
  const sums = { crc32: hexOf(crc32(body)), ...(sum && { md5: sum }) };
  return { passed: body.length, etag: sum, checksums: () => sums };
}

/**
 * Counts and sums what passes. The last chunk is held back until the source has ended well, so that a body which is too
 * short, too long or broken never arrives whole at the other end.
 */
export class Meter extends Transform implements Sums {
  // Not `size`: lib-storage takes a body's `size` for its length.
  passed = 0;
  /** Whether the body has ended as it should. Nothing behind this stream can have all of it before. */
  whole = false;
  etag: string | undefined;
  #crc = 0;
  #md5: Hash | undefined;
  readonly #parts: Buffer[] = [];
  readonly #partBytes: number;
  #room: number;
  readonly #expected: number | undefined;
  readonly #least: number;
  #held: Buffer | undefined;
  readonly #fence: (() => Promise<void>) | undefined;

  /** `least`: smaller chunks are put together, but for the last. `fence`: see PutOptions. */
  constructor(options: {
    expected: number | undefined;
    md5: boolean;
    partBytes?: number;
    least?: number;
    fence?: (() => Promise<void>) | undefined;
  }) {
    super({ highWaterMark: 1 << 16 });
    this.#expected = options.expected;
    this.#least = options.least ?? 0;
    this.#fence = options.fence;
    this.#md5 = options.md5 ? createHash('md5') : undefined;
    this.#partBytes = this.#room = options.partBytes ?? Number.POSITIVE_INFINITY;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    // Held back in place of the chunk before it, an empty one would let the body through before its end.
    if (chunk.length === 0) {
      done();
      return;
    }
    this.passed += chunk.length;
    if (this.#expected !== undefined && this.passed > this.#expected) {
      done(new WrongLength(`the body goes on behind its ${this.#expected} bytes`));
      return;
    }
    this.#crc = crc32(chunk, this.#crc);
    this.#sum(chunk);
    if (this.#held && this.#held.length < this.#least) {
      this.#held = Buffer.concat([this.#held, chunk]);
      done();
      return;
    }
    const before = this.#held;
    this.#held = chunk;
    done(null, before);
  }

  override _flush(done: TransformCallback): void {
    if (this.#expected !== undefined && this.passed !== this.#expected) {
      done(new WrongLength(`the body ended at byte ${this.passed} of ${this.#expected}`));
      return;
    }
    if (this.#fence)
      this.#fence().then(
        () => this.#end(done),
        (error) => done(error),
      );
    else this.#end(done);
  }

  #end(done: TransformCallback): void {
    const last = this.#md5?.digest();
    if (last && this.#parts.length > 0) {
      const all = [...this.#parts, last];
      this.etag = `${createHash('md5').update(Buffer.concat(all)).digest('hex')}-${all.length}`;
    } else {
      this.etag = last?.toString('hex');
    }
    this.whole = true;
    done(null, this.#held);
  }

  #sum(chunk: Buffer): void {
    for (let rest = chunk; this.#md5 && rest.length > 0; ) {
      if (this.#room === 0) {
        this.#parts.push(this.#md5.digest());
        this.#md5 = createHash('md5');
        this.#room = this.#partBytes;
      }
      const piece = rest.subarray(0, this.#room);
      this.#md5.update(piece);
      this.#room -= piece.length;
      rest = rest.subarray(piece.length);
    }
  }

  checksums(): { crc32: string; md5?: string } {
    const sum = { crc32: hexOf(this.#crc) };
    return this.etag && this.#parts.length === 0 ? { ...sum, md5: this.etag } : sum;
  }
}

/** The checksums of a body, which is read to its end. */
export async function measure(body: Readable, signal?: AbortSignal): Promise<{ crc32: string }> {
  const meter = new Meter({ expected: undefined, md5: false });
  await pipeline(body, meter.resume(), { signal });
  return meter.checksums();
}

/** A body that is not as long as was declared, or was let go of before its end. */
export class WrongLength extends Error {
  override readonly name = 'WrongLength';
}

/**
 * A body on its way through a meter. `breaker` is aborted with what breaks first, the body, the caller's patience or what
 * the store adds, and its reason is what a put rejects with. The body's errors never end the process, whenever they come.
 */
export function openBody(body: Readable | Buffer | string, signal: AbortSignal | undefined) {
  const source = body instanceof Readable ? body : Readable.from([Buffer.from(body)], { objectMode: false });
  const breaker = new AbortController();
  const stop = () => breaker.abort(signal!.reason);
  source.on('error', (error) => breaker.abort(error));
  if (signal?.aborted) stop();
  else signal?.addEventListener('abort', stop, { once: true });
  const broken = new Promise<never>((_, reject) => {
    breaker.signal.addEventListener('abort', () => reject(breaker.signal.reason), { once: true });
  });
  broken.catch(() => {});

  return {
    breaker,
    /** Never fulfilled; rejects with the breaker's reason. */
    broken,
    /** Fulfilled when all of it has passed; when it breaks, never. */
    flowInto(meter: Meter): Promise<void> {
      const early = () => new WrongLength(`the body was closed at byte ${meter.passed}, before its end`);
      const closed = () => {
        if (!source.readableEnded) breaker.abort(source.errored ?? early());
      };
      const broke = () => {
        source.destroy();
        meter.destroy(breaker.signal.reason);
      };
      meter.on('error', (error) => breaker.abort(error));
      if (breaker.signal.aborted) broke();
      breaker.signal.addEventListener('abort', broke, { once: true });
      // Not by `pipeline`, whose watch over both ends costs as much as a small body's way through.
      source.once('close', closed).pipe(meter);
      if (source.destroyed) closed();
      return new Promise((resolve) => meter.once('finish', resolve));
    },
    close(): void {
      signal?.removeEventListener('abort', stop);
      source.destroy();
    },
  };
}
