import type { ComparedObject } from '../floor/compared-object.ts';
import { concurrently } from '../floor/concurrently.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { storable } from '../source/schemas.ts';
import type { Storage, StoredObject } from '../storage/storage.ts';
import type { Remedy, VerificationCounts, VerificationLine } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { compareObject } from './compare-object.ts';
import { type Expected, expectedOf } from './expected-objects.ts';
import { type Finding, verificationLine } from './finding.ts';
import { ownedAmong } from './owned-keys.ts';

export interface CompareDeps {
  store: Store;
  storage: Storage;
}

/** The expected object and the listed object at a key. */
export interface Pair {
  key: string;
  expected?: Expected;
  /** `unlisted`: to be requested from the bucket. */
  listed?: StoredObject | 'unlisted';
}

/** Objects that are read at once. */
const readers = 4;

interface Options {
  deep?: boolean | undefined;
  /** Objects without a record have no finding, as they may belong to other connections. */
  skipForeign: boolean;
  counts: VerificationCounts;
  signal: AbortSignal;
}

/** What reading has shown, to be saved in the records. */
interface Learned {
  /** Assets whose media was read and is correct. */
  verified: { id: string; lease: number }[];
  /** Objects with another ETag for the same content, as in a copied bucket. */
  copied: { id: string; lease: number; key: string; etag: string }[];
  /** Correct objects whose content hash was not known. */
  hashed: { id: string; lease: number; key: string; sha256: string }[];
}

/** A finding for each pair, in the same order. Foreign objects that turn out to belong to an asset have none. */
export async function compareObjects(
  deps: CompareDeps,
  batch: Pair[],
  options: Options,
): Promise<{ findings: Finding[]; learned: Learned }> {
  const learned: Learned = { verified: [], copied: [], hashed: [] };
  const foreign = options.skipForeign ? [] : batch.filter(({ expected }) => !expected).map(({ key }) => key);
  const owned = await ownedAmong(deps.store, foreign);
  const findings = await concurrently(
    batch,
    readers,
    async ({ key, expected, listed }): Promise<Finding | undefined> => {
      if (expected) return compareExpected(deps, expected, listed, { ...options, learned });
      if (options.skipForeign || owned.has(key)) return undefined;
      return { ...verificationLine('+', { code: 'foreign_object' }), key: storable(key) };
    },
  );
  return { findings: findings.filter((finding) => finding !== undefined), learned };
}

/**
 * The finding for an object that should be there. A difference counts only if the row, read again afterwards, is idle and
 * unchanged: otherwise a worker may have changed the object.
 */
async function compareExpected(
  deps: CompareDeps,
  first: Expected,
  listed: StoredObject | 'unlisted' | undefined,
  options: Options & { learned: Learned },
): Promise<Finding> {
  const { store } = deps;
  let expected = first;
  let object = listed;
  for (let tries = 0; tries < 3; tries++) {
    const finding = await compareOnce(deps, expected, object, options);
    if (finding.mark === '=') {
      if (options.deep && expected.kind === 'media' && finding.reason?.code !== 'archived') {
        options.learned.verified.push({ id: expected.asset.id, lease: expected.asset.lease });
      }
      return finding;
    }
    const row = await store.contents.get(expected.asset.id);
    const again = row && expectedOf(row).find(({ key }) => key === expected.key);
    if (!row || !again || row.isMoving) return 'moving';
    const { lease, revision } = expected.asset;
    if (tries > 0 && row.lease === lease && row.revision === revision) return finding;
    expected = again;
    object = 'unlisted';
  }
  return 'moving';
}

async function compareOnce(
  { storage }: CompareDeps,
  expected: Expected,
  listed: StoredObject | 'unlisted' | undefined,
  { deep, counts, learned, signal }: Options & { learned: Learned },
): Promise<VerificationLine> {
  const { key, asset, kind, etag, crc32, sha256 } = expected;
  const isGone = asset.state === 'gone';
  const compared: ComparedObject = { kind, ...(isGone && { gone: true }) };
  const options = { compared, listed, deep, hashed: storage.hashes, counts, signal };
  const { mark, reason, read } = await compareObject(storage, expected, options);
  if (read) {
    const at = { id: asset.id, lease: asset.lease, key };
    if (etag !== undefined && read.etag !== undefined && read.etag !== etag)
      learned.copied.push({ ...at, etag: read.etag });
    // The content hash is saved only if the CRC-32 was right: otherwise the content may be damaged.
    const found = read.checksums.sha256;
    if (crc32 !== undefined && sha256 === undefined && found) learned.hashed.push({ ...at, sha256: found });
  }
  const remedy = isGone ? null : remedyFor(kind, reason);
  return { mark, key, assetId: asset.id, kind, remedy, reason, difference: mark !== '=' };
}

const repairable: ReadonlySet<Reason['code']> = new Set(['missing_object', 'wrong_length', 'wrong_checksum']);

/** Whether an object with this finding is known to be wrong, so that a repair can help. */
export const isRepairable = ({ code }: Reason): boolean => repairable.has(code);

/** How an object is repaired. Null: no repair can help. */
function remedyFor(kind: Expected['kind'], reason: Reason | null): Remedy | null {
  if (!reason || !isRepairable(reason)) return null;
  if (kind !== 'media') return 'write';
  return reason.code === 'wrong_checksum' ? 'fetch' : 'check';
}
