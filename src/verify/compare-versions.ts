import type { ComparedObject } from '../floor/compared-object.ts';
import { concurrently } from '../floor/concurrently.ts';
import { versionKeys, versionName } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type {
  AssetVersion,
  ObjectKind,
  VerificationCounts,
  VerificationLine,
  VersionFile,
} from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { compareObject, type KnownObject } from './compare-object.ts';
import { differencesAmong, type Finding } from './finding.ts';

/** Versions whose objects are requested at once. */
const atOnce = 4;

interface Options {
  deep?: boolean | undefined;
  counts: Pick<VerificationCounts, 'bytesRead' | 'archived'>;
  signal: AbortSignal;
}

/** A finding for each object of these versions. `moving`: its version is being removed, or was. */
export async function compareVersions(
  { store, storage }: { store: Pick<Store, 'versions'>; storage: Storage },
  versions: AssetVersion[],
  options: Options,
): Promise<Finding[]> {
  const findings = await concurrently(versions, atOnce, async (version) => {
    const found: Finding[] = [];
    for (const object of objectsOf(version)) found.push(await compare(storage, version, object, options));
    if (differencesAmong(found).length === 0 || (await store.versions.isKept(version))) return found;
    return found.map((): Finding => 'moving');
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

type KeptObject = KnownObject & { kind: ObjectKind };

/** The objects of a version. Nothing measured its record when it was written. */
const objectsOf = ({ assetId, replacedAt, files }: AssetVersion): KeptObject[] => [
  ...files.map(({ at, role, etag, ...file }) => ({ ...file, key: at, kind: kinds[role], etag: etag ?? undefined })),
  { key: versionKeys.record(assetId, replacedAt), kind: 'record' },
];

async function compare(
  storage: Storage,
  { assetId, replacedAt }: AssetVersion,
  { kind, ...known }: KeptObject,
  { deep, ...options }: Options,
): Promise<VerificationLine> {
  const compared: ComparedObject = { kind, version: versionName(replacedAt) };
  // Without a checksum, nothing can be learned from the content.
  const isRead = known.crc32 !== undefined;
  const { mark, reason } = await compareObject(
    storage,
    { ...known, etag: isRead ? known.etag : undefined },
    { ...options, deep: deep && isRead, compared, listed: 'unlisted' },
  );
  return { mark, key: known.key, assetId, kind, remedy: null, reason, difference: mark !== '=' };
}
