import { createHash, type Hash } from 'node:crypto';
import { type Readable, Transform, type TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { crc32 } from 'node:zlib';
import { Archived, NamedError } from '../floor/errors.ts';
import { BlockHashes, contentHashOf } from './content-hash.ts';
import { hexOf } from './crc32.ts';
import type { ReadOptions, Storage } from './storage.ts';

/** Length and checksums of a body, once it has ended. */
export interface Sums {
  /** The length in bytes. */
  passed: number;
  /** The MD5, which some stores use as the ETag. */
  etag: string | undefined;
  /** Lower-case hex; `sha256`: the content hash. */
  checksums(): Checksums;
  /** The SHA-256 of each block of the content hash; null if it is not computed. */
  blocks(): string[] | null;
}

export type Checksums = { crc32: string; md5?: string; sha256?: string };

export function sumsOf(body: Buffer, { md5, hashed }: Summing & Pick<MeterOptions, 'hashed'>): Sums {
  const sum = md5 ? createHash('md5').update(body).digest('hex') : undefined;
  const hashes = hashed ? new BlockHashes() : undefined;
  hashes?.update(body);
  const blocks = hashes?.blocks() ?? null;
  const sums = checksumsOf(crc32(body), sum, blocks);
  return { passed: body.length, etag: sum, checksums: () => sums, blocks: () => blocks };
}

const checksumsOf = (crc: number, md5: string | undefined, blocks: string[] | null): Checksums => ({
  crc32: hexOf(crc),
  ...(md5 && { md5 }),
  ...(blocks && { sha256: contentHashOf(blocks) }),
});

export interface MeterOptions {
  /** The declared length in bytes; undefined when it is unknown. */
  expected?: number | undefined;
  /** See PutOptions. */
  fence?: (() => Promise<void>) | undefined;
  /** Whether the content hash is computed. */
  hashed?: boolean | undefined;
}

/** The checksums that are computed besides CRC-32. */
export interface Summing {
  md5: boolean;
}

/**
 * Counts the bytes of a body and computes its checksums. Withholds the last chunk until the source has ended correctly, so
 * that a body which is too short, too long or broken never arrives complete.
 */
export class Meter extends Transform implements Sums {
  passed = 0;
  /** Whether the body has ended correctly. */
  whole = false;
  /** Why the body failed, or the reason of the signal; undefined if only the reader of the meter failed. */
  bodyError: unknown;
  etag: string | undefined;
  #crc = 0;
  #md5: Hash | undefined;
  readonly #hashes: BlockHashes | undefined;
  #withheld: Buffer | undefined;
  readonly #options: MeterOptions;

  constructor(options: MeterOptions) {
    super({ highWaterMark: 1 << 16 });
    this.#options = options;
    this.#hashes = options.hashed ? new BlockHashes() : undefined;
  }

  sumWith({ md5 }: Summing): void {
    this.#md5 = md5 ? createHash('md5') : undefined;
  }

  /** Ends the transfer because of the body, not because of the reader of the meter. */
  fail(reason: unknown): void {
    if (this.destroyed) return;
    this.bodyError = reason;
    this.destroy(reason as Error);
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    // An empty chunk must not replace the withheld one, which would then pass before the end.
    if (chunk.length === 0) {
      done();
      return;
    }
    const { expected } = this.#options;
    this.passed += chunk.length;
    if (expected !== undefined && this.passed > expected) {
      this.fail(new WrongLength(`the body continues after its ${expected} bytes`));
      return;
    }
    this.#crc = crc32(chunk, this.#crc);
    this.#md5?.update(chunk);
    this.#hashes?.update(chunk);
    const before = this.#withheld;
    this.#withheld = chunk;
    done(null, before);
  }

  override _flush(done: TransformCallback): void {
    const { expected, fence } = this.#options;
    if (expected !== undefined && this.passed !== expected) {
      this.fail(new WrongLength(`the body ended at byte ${this.passed} of ${expected}`));
      return;
    }
    const end = () => {
      this.etag = this.#md5?.digest('hex');
      this.whole = true;
      done(null, this.#withheld);
    };
    if (fence) fence().then(end, (error) => this.fail(error));
    else end();
  }

  checksums(): Checksums {
    return checksumsOf(this.#crc, this.etag, this.blocks());
  }

  blocks(): string[] | null {
    return this.#hashes?.blocks() ?? null;
  }
}

/**
 * Sends a body through a meter. If one of them ends early, the other is destroyed. All errors reach the reader
 * of the meter; `bodyError` is set if the body caused them. The body is not read before `ready` resolves.
 */
export function metered(
  body: Readable,
  {
    signal,
    ready,
    ...options
  }: MeterOptions & { signal?: AbortSignal | undefined; ready?: Promise<Summing | undefined> },
): Meter {
  const meter = new Meter(options);
  meter.on('error', () => {});
  const closed = () => {
    if (!body.readableEnded) {
      meter.fail(body.errored ?? new WrongLength(`the body was closed at byte ${meter.passed}, before its end`));
    }
  };
  const stop = () => meter.fail(signal!.reason);
  body.on('error', (error) => meter.fail(error)).once('close', closed);
  if (body.destroyed) closed();
  if (signal?.aborted) stop();
  signal?.addEventListener('abort', stop, { once: true });
  meter.once('close', () => signal?.removeEventListener('abort', stop));
  const flow = async () => {
    try {
      const summing = await ready;
      if (summing) meter.sumWith(summing);
      await pipeline(body, meter);
    } catch (error) {
      meter.destroy(error as Error);
      body.destroy();
    }
  };
  void flow();
  return meter;
}

/** Reads a body to its end and returns its checksums; with `hashed` also its content hash. */
export async function measure(
  body: Readable,
  signal?: AbortSignal,
  options: Pick<MeterOptions, 'hashed'> = {},
): Promise<Checksums> {
  const meter = new Meter(options);
  await pipeline(body, meter.resume(), { signal });
  return meter.checksums();
}

/** The CRC-32 of an object, lower-case hex; null: there is no object. @throws Archived */
export async function crc32At(
  storage: Pick<Storage, 'get'>,
  key: string,
  options: ReadOptions,
): Promise<string | null> {
  const body = await storage.get(key, options);
  return body ? (await measure(body, options.signal)).crc32 : null;
}

/**
 * Whether an object has this CRC-32, or exists if none is known. An archived one counts as intact: it cannot be read, but that is no
 * reason to fetch it again.
 */
export async function isIntact(
  storage: Pick<Storage, 'get'>,
  key: string,
  crc32: string | undefined,
  options: ReadOptions,
): Promise<boolean> {
  try {
    const found = await crc32At(storage, key, options);
    return found !== null && (crc32 === undefined || found === crc32);
  } catch (error) {
    if (error instanceof Archived) return true;
    throw error;
  }
}

/** A body is longer or shorter than declared, or was closed before its end. */
export class WrongLength extends NamedError {}
