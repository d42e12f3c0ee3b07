import type { ComparedObject } from '../floor/compared-object.ts';
import { Archived, reasonOf } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { type Checksums, measure } from '../storage/meter.ts';
import type { Storage, StoredObject } from '../storage/storage.ts';
import { throwIfUnavailable } from '../storage/throw-if-unavailable.ts';
import type { VerificationCounts } from '../store/database/schema.ts';

/** An object as the database describes it. What is undefined is not known, and not compared. */
export interface KnownObject {
  key: string;
  versionId?: string | undefined;
  bytes?: number | undefined;
  etag?: string | undefined;
  crc32?: string | undefined;
  sha256?: string | undefined;
}

export interface Comparison {
  mark: '=' | '*' | '-' | '!';
  reason: Reason | null;
  /** The checksums and the ETag of an object that was read and is as expected. */
  read?: { checksums: Checksums; etag: string | undefined };
}

interface Options {
  /** What the reason says about the object. */
  compared: ComparedObject;
  /** The object as it was listed; `unlisted`: it is requested; undefined: there is none. */
  listed: StoredObject | 'unlisted' | undefined;
  /** Reads the object, too. */
  deep?: boolean | undefined;
  /** Also computes the content hash of what is read, if it is not known. */
  hashed?: boolean;
  counts: Pick<VerificationCounts, 'bytesRead' | 'archived'>;
  signal: AbortSignal;
}

/** Compares an object in the bucket with the database. @throws StorageUnavailable if the whole bucket cannot be used */
export async function compareObject(
  storage: Storage,
  { key, versionId, bytes, etag, ...checksums }: KnownObject,
  { compared, listed, deep, hashed, counts, signal }: Options,
): Promise<Comparison> {
  const missing = (): Comparison => ({ mark: '-', reason: { code: 'missing_object', ...compared } });
  /** Compared without reading it. */
  const archived = (): Comparison => {
    counts.archived++;
    return { mark: '=', reason: { code: 'archived', ...compared } };
  };
  try {
    const object = listed === 'unlisted' ? await storage.head(key, { signal, versionId }) : listed;
    if (!object) return missing();
    if (bytes !== undefined && object.bytes !== bytes) {
      const lengths = { expected: bytes, got: object.bytes };
      return { mark: '*', reason: { code: 'wrong_length', of: 'object', ...lengths, ...compared } };
    }
    // A copied bucket has other ETags: then the content decides.
    const hasOtherEtag = etag !== undefined && object.etag !== undefined && etag !== object.etag;
    if (!deep && !hasOtherEtag) return object.archived ? archived() : { mark: '=', reason: null };
    const body = await storage.get(key, { signal, versionId });
    if (!body) return missing();
    const found = await measure(body, signal, { hashed: hashed || checksums.sha256 !== undefined });
    counts.bytesRead += object.bytes;
    const difference = differenceOf(found, checksums);
    if (difference) return { mark: '*', reason: { code: 'wrong_checksum', ...difference, ...compared } };
    return { mark: '=', reason: null, read: { checksums: found, etag: object.etag } };
  } catch (error) {
    if (error instanceof Archived) return archived();
    if (signal.aborted) throw error;
    await throwIfUnavailable(storage, error);
    return { mark: '!', reason: { code: 'unreadable_object', error: reasonOf(error), ...compared } };
  }
}

/** The first checksum that differs. Undefined: no known one does. */
export function differenceOf(found: Checksums, expected: { crc32?: string | undefined; sha256?: string | undefined }) {
  for (const [name, checksum] of [['crc32', 'CRC-32'] as const, ['sha256', 'SHA-256'] as const]) {
    const known = expected[name];
    if (known !== undefined && found[name] !== known) return { checksum, expected: known, got: String(found[name]) };
  }
  return undefined;
}
