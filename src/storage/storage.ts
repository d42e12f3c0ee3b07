import type { Readable } from 'node:stream';

/** An object as the store has it. */
export interface StoredObject {
  key: string;
  bytes: number;
  etag: string | undefined;
  modified: Date | undefined;
}

/** What was stored, and proven to be. Checksums are lower-case hex: `crc32`, and `md5` where the store can be asked for it. */
export interface Stored {
  key: string;
  bytes: number;
  etag: string | undefined;
  checksums: Record<string, string>;
}

export interface PutOptions {
  /** The exact length of the body; undefined when it is not known before its end. */
  bytes?: number | undefined;
  contentType?: string | undefined;
  contentDisposition?: string | undefined;
  metadata?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
  /** Asked when the body has ended well, before its last bytes go on: what it throws breaks the put like an error of the body. */
  fence?: (() => Promise<void>) | undefined;
}

/** An upload in parts, as it must be remembered to go on with it after its process has died. */
export interface Upload {
  /** The store's own name for it. */
  id: string;
  key: string;
  bytes: number;
  /** Of each part but the last. */
  partBytes: number;
}

/** A part as it was stored and proven. `crc32` is lower-case hex. */
export interface Part {
  number: number;
  bytes: number;
  etag: string;
  crc32: string;
}

/**
 * Uploads in parts. Nothing of one is seen at its key before `complete`; parts may be put side by side, in any order, again,
 * and by different processes. What was remembered of an upload is a hint: `list` is the truth.
 */
export interface Uploads {
  begin(key: string, options: PutOptions & { bytes: number }): Promise<Upload>;
  /** `body` is exactly the part's bytes, held to what `Storage` guarantees of a body. */
  put(upload: Upload, number: number, body: Readable, options?: { signal?: AbortSignal }): Promise<Part>;
  /**
   * What the store has, by number; undefined when it knows no such upload (any more).
   * @throws UploadLost when the store cannot list parts
   */
  list(
    upload: Upload,
    options?: { signal?: AbortSignal },
  ): Promise<Map<number, { bytes: number; etag: string }> | undefined>;
  /**
   * Makes the object of all parts, in order, and proves it. An answer that does not say what became of it is not believed
   * in either sense: what lies at the key decides.
   * @throws UploadLost when the store knows the upload no more and the object is not there
   */
  complete(upload: Upload, parts: Part[], options?: { signal?: AbortSignal }): Promise<Stored>;
  /** Returns when nothing of it is left. */
  abort(upload: Pick<Upload, 'id' | 'key'>): Promise<void>;
}

/** An upload in parts that was begun, as the store knows it; `key`, as far as it tells. */
export interface OpenUpload {
  id: string;
  key?: string;
  begun: Date | undefined;
}

export interface Sweep {
  olderThan: Date;
  /** The ids of those that nobody goes on with. `shared`: others may have uploads in the same place. */
  strays(open: OpenUpload[], options: { shared: boolean }): Promise<Set<string>>;
  signal?: AbortSignal | undefined;
}

/** The upload cannot go on; another may begin. */
export class UploadLost extends Error {
  override readonly name = 'UploadLost';
}

/** How large the `number`th part is; the first is 1. */
export function partLength(upload: { bytes: number; partBytes: number }, number: number): number {
  return Math.min(upload.partBytes, upload.bytes - (number - 1) * upload.partBytes);
}

/** The smallest part that S3 takes, other than the last (S3 user guide, "Multipart upload limits"). */
export const smallestPart = 5 * 2 ** 20;

/** 5 MiB up to 32 MiB, then 16 MiB, or as many more as it takes for 10,000 parts to be enough. */
export function partBytesFor(bytes: number): number {
  const mib = 2 ** 20;
  return bytes <= 32 * mib ? smallestPart : Math.max(16 * mib, Math.ceil(bytes / 10_000 / mib) * mib);
}

/**
 * A place for objects. What every implementation guarantees, and the conformance suite holds it to:
 *
 * - An object appears whole or not at all. Until a `put` has returned, readers see what was there before.
 * - A body that fails, ends before `bytes`, goes on behind it, is closed before its end, or is aborted makes `put` reject
 *   and leaves nothing behind: neither an object nor a part of one. The same when its fence refuses. The body is destroyed
 *   in any case. Bytes at hand are taken as they are when `put` is called.
 * - When `put` returns, the object is stored, and what the store says it has, its length and where it has one its checksum,
 *   was compared with what was sent.
 * - Memory does not grow with the size of a body whose length is known.
 * - Keys are `/`-separated text as `keys.ts` makes them. `list` gives them in the order of their UTF-8 bytes.
 * - What keeps the whole store from working (missing, full, wrong keys) is a StorageUnavailable that says so; a body's own
 *   error comes back as it is, and an abort as its signal's reason.
 */
export interface Storage {
  /** For people: `s3://bucket/prefix`, `file:///dir`. */
  readonly name: string;
  put(key: string, body: Readable | Buffer | string, options?: PutOptions): Promise<Stored>;
  readonly uploads: Uploads;
  /** The whole object, or undefined when there is none. */
  get(key: string, options?: { signal?: AbortSignal }): Promise<Readable | undefined>;
  head(key: string, options?: { signal?: AbortSignal }): Promise<StoredObject | undefined>;
  list(prefix: string, options?: { signal?: AbortSignal }): AsyncIterable<StoredObject>;
  /** Removing what is not there is no error. */
  remove(key: string): Promise<void>;
  /** Ends uploads in parts that were begun before `olderThan` and that nobody goes on with. Returns how many. */
  sweep(what: Sweep): Promise<number>;
  /** Whether objects can be written now, found out by writing one and removing it. @throws StorageUnavailable */
  check(): Promise<void>;
  /**
   * A value that changes when the object or the whole store is replaced, cheap enough for every write; undefined without
   * the object. Stores for which it would be a request do not have this.
   */
  stamp?(key: string): Promise<string | undefined>;
  /** What is there now was proven to be the right place: whatever it was told by until now is learnt anew. */
  trust?(): Promise<void>;
  close(): Promise<void>;
}
