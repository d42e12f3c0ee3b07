import type { Readable } from 'node:stream';
import { NamedError } from '../floor/errors.ts';
import { blockBytes } from './content-hash.ts';

/** An object as the store has it. */
export interface StoredObject {
  key: string;
  bytes: number;
  etag: string | undefined;
  modified: Date | undefined;
  /** The storage class makes the object unreadable without a restore. A listing does not know which objects were restored. */
  archived?: true;
  /** Only in a bucket with versions, and not from a listing. */
  versionId?: string;
}

/** An object that was kept. In a bucket with versions it is a version of its key. */
export interface KeptObject {
  key: string;
  versionId?: string;
  bytes: number;
  etag: string | undefined;
}

export interface KeepOptions {
  /** The object as `head` has described it. */
  found?: StoredObject;
  signal?: AbortSignal;
}

export interface ReadOptions {
  signal?: AbortSignal | undefined;
  /** This version of the object, as `keep` returned it, instead of the current one. */
  versionId?: string | undefined;
}

export interface GetOptions extends ReadOptions {
  /** Reads only the bytes from `first` to `last`, both included, instead of the whole object. */
  range?: { first: number; last: number } | undefined;
  /** The object as `head` described it: another object at the key counts as none. */
  found?: StoredObject | undefined;
}

/** How a browser takes an object that it gets by a link. */
export interface LinkOptions {
  contentType: string;
  contentDisposition: string;
  /** How long the link is valid, in ms. */
  ms: number;
}

/** Signed addresses with which a browser gets an object from the store itself. Nothing here sends a request to the store. */
export interface Links {
  to(key: string, options: LinkOptions): Promise<string>;
  /** Where all links lead. */
  origin(): Promise<string>;
}

/** A stored and verified object. Checksums are lower-case hex: `crc32`, `sha256` (the content hash), `md5` where the store compares it. */
export interface Stored {
  key: string;
  bytes: number;
  etag: string | undefined;
  checksums: Record<string, string>;
}

export interface PutOptions {
  /** The exact length of the body; undefined if it is unknown. */
  bytes?: number | undefined;
  contentType?: string | undefined;
  contentDisposition?: string | undefined;
  metadata?: Record<string, string> | undefined;
  /** The object is a media file: S3_STORAGE_CLASS and S3_OBJECT_LOCK apply to no other objects. */
  media?: true;
  signal?: AbortSignal | undefined;
  /** Called when the body has ended, before its last bytes are sent. If it throws, the put fails as with an error of the body. */
  fence?: (() => Promise<void>) | undefined;
}

/** An upload in parts: what must be kept to resume it in another process. */
export interface Upload {
  /** The store's own name for the upload. */
  id: string;
  key: string;
  bytes: number;
  /** Of each part but the last. */
  partBytes: number;
  /** The checksum with which the store verifies its parts: an upload accepts no other. Undefined: none. */
  checksum?: 'sha256' | 'crc32' | undefined;
}

/** A stored and verified part. `crc32` is lower-case hex. */
export interface Part {
  number: number;
  bytes: number;
  etag: string;
  crc32: string;
  /** The SHA-256 of each of its blocks, see content-hash.ts; null if they were not hashed. */
  blocks: string[] | null;
}

/**
 * Uploads in parts. Nothing is visible at the key before `complete`. Parts may be put at the same time, in any order, again,
 * and by different processes. Records about an upload may be out of date: `list` is the truth.
 */
export interface Uploads {
  begin(key: string, options: PutOptions & { bytes: number }): Promise<Upload>;
  /** `body` is exactly the part's bytes, with the guarantees of `Storage` about bodies. */
  put(upload: Upload, number: number, body: Readable, options?: { signal?: AbortSignal }): Promise<Part>;
  /**
   * The stored parts by number; undefined if the store does not know the upload, or no longer does.
   * @throws UploadLost when the store cannot list parts
   */
  list(
    upload: Upload,
    options?: { signal?: AbortSignal },
  ): Promise<Map<number, { bytes: number; etag: string }> | undefined>;
  /**
   * Makes the object of all parts, in order, and verifies it. After an unclear answer, the object at the key decides.
   * @throws UploadLost when the store no longer knows the upload and the object does not exist
   */
  complete(upload: Upload, parts: Part[], options?: { signal?: AbortSignal }): Promise<Stored>;
  /** Returns when nothing of the upload is left. */
  abort(upload: Pick<Upload, 'id' | 'key'>): Promise<void>;
}

/** An unfinished upload in parts in the store. */
export interface OpenUpload {
  id: string;
  key?: string;
  begun: Date | undefined;
}

export interface Sweep {
  olderThan: Date;
  /** Returns the ids that are abandoned. `shared`: other programs may have uploads in the same bucket. */
  strays(open: OpenUpload[], options: { shared: boolean }): Promise<Set<string>>;
  signal?: AbortSignal | undefined;
}

/** An object, or a version of one, that `purge` found. */
export interface Purged {
  key: string;
  bytes: number;
  versionId?: string;
  /** This version remains: it is locked (until this date, if known), or the store denies its removal. */
  left?: { versionId: string; lockedUntil: Date | undefined };
}

export interface PurgeOptions {
  signal?: AbortSignal | undefined;
  /** Removes nothing. */
  dryRun?: boolean | undefined;
  /** Only this version of the object. */
  versionId?: string | undefined;
  /** Is called before each removal, and throws if nothing may be removed any more. */
  fence?: (() => Promise<void>) | undefined;
}

export interface LockOptions {
  versionId?: string | undefined;
  atMost?: Date | undefined;
}

/** Object Lock: until a date, nothing can remove or replace the stored version of an object. */
interface ObjectLock {
  /** Names bucket, prefix and endpoint. Locks are not copied to another one. */
  place: string;
  /** How long an object is locked when it is written or extended. */
  ms: number;
  /**
   * Locks the object at the key, or a version of it, for `ms` from now but not after `atMost`, unless half of that remains.
   * Returns until when it is locked; undefined if there is no such object.
   */
  extend(key: string, options?: LockOptions): Promise<Date | undefined>;
}

/** The upload cannot be continued; a new one can begin. */
export class UploadLost extends NamedError {}

/** The length of a part in bytes; the first has number 1. */
export function partLength(upload: { bytes: number; partBytes: number }, number: number): number {
  return Math.min(upload.partBytes, upload.bytes - (number - 1) * upload.partBytes);
}

/** The smallest part that S3 takes, other than the last (S3 user guide, "Multipart upload limits"). */
export const smallestPart = 5 * 2 ** 20;

/** 5 MiB for objects up to 32 MiB, else a block of the content hash, or several where 10,000 parts would not be enough. */
export function partBytesFor(bytes: number): number {
  return bytes <= 32 * 2 ** 20 ? smallestPart : Math.ceil(bytes / 10_000 / blockBytes) * blockBytes;
}

/**
 * A store of objects. Every implementation guarantees, and the conformance suite checks:
 *
 * - An object appears whole or not at all. Until a `put` has returned, readers see the previous object.
 * - If a body fails, is shorter or longer than `bytes`, is closed before its end, or is aborted, or if the fence throws, then
 *   `put` rejects and leaves nothing behind: neither an object nor a part of one. The body is destroyed in any case. A
 *   buffer is copied when `put` is called.
 * - When `put` returns, the object is stored, and the length and the checksum (if any) that the store reports were compared
 *   with what was sent.
 * - Memory does not grow with the size of a body whose length is known.
 * - Keys are `/`-separated text as `keys.ts` makes them. `list` gives them in the order of their UTF-8 bytes.
 * - If the whole store cannot work (missing, full, wrong credentials), the error is a StorageUnavailable with the reason. An
 *   error of a body is thrown unchanged, and an abort as the reason of its signal.
 */
export interface Storage {
  /** For people: `s3://bucket/prefix`, `file:///dir`. */
  readonly name: string;
  /** Whether `put` and `uploads` compute content hashes (CONTENT_HASH). */
  readonly hashes: boolean;
  put(key: string, body: Readable | Buffer | string, options?: PutOptions): Promise<Stored>;
  readonly uploads: Uploads;
  /** The object's bytes; undefined if there is none. @throws Archived if the store must restore it first */
  get(key: string, options?: GetOptions): Promise<Readable | undefined>;
  /** Undefined: browsers cannot reach the store. */
  readonly links?: Links | undefined;
  head(key: string, options?: ReadOptions): Promise<StoredObject | undefined>;
  list(prefix: string, options?: { signal?: AbortSignal }): AsyncIterable<StoredObject>;
  /**
   * Keeps an object, so that a later `put` or `remove` at its key does not lose it: as its own version where the bucket has
   * versions, elsewhere as a copy at `as`, which is verified. Undefined without the object. The result is the same if it is repeated.
   * @throws if another object has replaced `found`; an earlier copy at `as` then stays
   */
  keep(key: string, as: string, options?: KeepOptions): Promise<KeptObject | undefined>;
  /** No error if there is no such object. */
  remove(key: string, options?: { versionId?: string | undefined }): Promise<void>;
  /**
   * Removes the object at a key, or every object below a folder (`at` ends with `/`), with all versions. Yields what it found.
   * A version that is locked stays, and is hidden by a delete marker.
   */
  purge(at: string, options?: PurgeOptions): AsyncIterable<Purged>;
  /** Aborts abandoned uploads in parts that were begun before `olderThan`. Returns how many. */
  sweep(what: Sweep): Promise<number>;
  /** How media is locked; undefined without S3_OBJECT_LOCK. */
  readonly lock?: ObjectLock | undefined;
  /** Writes an object and removes it. @throws StorageUnavailable if that fails */
  check(): Promise<void>;
  /**
   * A value that changes when the object or the whole store is replaced; undefined without the object. Only for stores
   * that need no request for it, because it is called before every operation.
   */
  stamp?(key: string): Promise<string | undefined>;
  /** Called when the mirror id was correct: a directory then remembers its current disk as the right one. */
  rememberDisk?(): Promise<void>;
  close(): Promise<void>;
}
