import type { ComparedObject } from '../floor/compared-object.ts';
import { concurrently } from '../floor/concurrently.ts';
import { Archived, reasonOf } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { versionKeys } from '../storage/keys.ts';
import { measure } from '../storage/meter.ts';
import type { Storage } from '../storage/storage.ts';
import { throwIfUnavailable } from '../storage/throw-if-unavailable.ts';
import { versionName } from '../storage/version-name.ts';
import type {
  AssetVersion,
  ObjectKind,
  VerificationCounts,
  VerificationLine,
  VersionFile,
} from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { differenceOf, type ObjectResult } from './compare-objects.ts';

/** Versions whose objects are requested at once. */
const atOnce = 4;

type Part = Pick<VersionFile, 'at' | 'versionId' | 'crc32' | 'sha256'> & {
  kind: ObjectKind;
  bytes: number | undefined;
  etag: string | null;
};

interface Comparing {
  deep?: boolean | undefined;
  counts: Pick<VerificationCounts, 'bytesRead' | 'archived'>;
  signal: AbortSignal;
}

/** The result for each object of these versions. Undefined: its version is being removed, or was. */
export async function compareVersions(
  { store, storage }: { store: Pick<Store, 'versions'>; storage: Storage },
  versions: AssetVersion[],
  options: Comparing,
): Promise<ObjectResult[]> {
  const findings = await concurrently(versions, atOnce, async (version) => {
    const found: ObjectResult[] = [];
    for (const part of partsOf(version)) found.push(await compare(storage, version, part, options));
    if (found.every((finding) => !finding?.difference)) return found;
    return (await store.versions.isKept(version)) ? found : found.map(() => undefined);
  });
  return findings.flat();
}

const kinds: Record<VersionFile['role'], ObjectKind> = {
  media: 'media',
  record: 'record',
  captions: 'transcript',
  text: 'transcript',
  transcript: 'transcript',
  thumbnail: 'thumbnail',
};

/** The size of the record is unknown: nothing measured it when it was written. */
const partsOf = ({ assetId, replacedAt, files }: AssetVersion): Part[] => [
  ...files.map((file) => ({ ...file, kind: kinds[file.role] })),
  { at: versionKeys.record(assetId, replacedAt), kind: 'record', bytes: undefined, etag: null },
];

async function compare(
  storage: Storage,
  { assetId, replacedAt }: AssetVersion,
  { at, versionId, kind, bytes, etag, crc32, sha256 }: Part,
  { deep, signal, counts }: Comparing,
): Promise<VerificationLine> {
  const line = (mark: VerificationLine['mark'], reason: Reason | null = null): VerificationLine => ({
    mark,
    key: at,
    assetId,
    kind,
    remedy: null,
    reason,
    difference: mark !== '=',
  });
  const compared: ComparedObject = { kind, version: versionName(replacedAt) };
  /** Compared without reading it. */
  const archived = () => {
    counts.archived++;
    return line('=', { code: 'archived', ...compared });
  };
  try {
    const object = await storage.head(at, { signal, versionId });
    if (!object) return line('-', { code: 'missing_object', ...compared });
    if (bytes !== undefined && object.bytes !== bytes)
      return line('*', { code: 'wrong_length', of: 'object', expected: bytes, got: object.bytes, ...compared });
    // A copied bucket has other ETags: then the content decides.
    const hasOtherEtag = etag !== null && object.etag !== undefined && object.etag !== etag;
    if (crc32 === undefined || !(deep || hasOtherEtag)) return object.archived ? archived() : line('=');
    const body = await storage.get(at, { signal, versionId });
    if (!body) return line('-', { code: 'missing_object', ...compared });
    const found = await measure(body, signal, { hashed: sha256 !== undefined });
    counts.bytesRead += object.bytes;
    const difference = differenceOf(found, { crc32, sha256 });
    return difference ? line('*', { code: 'wrong_checksum', ...difference, ...compared }) : line('=');
  } catch (error) {
    if (error instanceof Archived) return archived();
    if (signal.aborted) throw error;
    await throwIfUnavailable(storage, error);
    return line('!', { code: 'unreadable_object', error: reasonOf(error), ...compared });
  }
}
