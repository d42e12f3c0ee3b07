import { concurrently } from '../../concurrently.ts';
import { Archived } from '../../errors.ts';
import { leafHash, MerkleTree } from '../../merkle.ts';
import { draftFolder } from '../../storage/directory/root.ts';
import { ours } from '../../storage/keys.ts';
import { measure } from '../../storage/meter.ts';
import { differenceOf, mediaKeysFrom } from '../compare-objects.ts';
import type { InventoryLine } from '../inventory-line.ts';
import type { Manifest } from '../manifest.ts';
import type { Entry } from './check-days.ts';
import type { Attesting, Finding, SignedObject } from './finding.ts';
import { KeySet } from './key-set.ts';
import { isExcused, isWrittenAfter } from './newer.ts';
import { linesOf } from './read.ts';

export interface ObjectCounts {
  /** Assets of the inventory that were compared so far. */
  assets: number;
  /** All assets of the inventory. */
  total: number;
  /** Read and compared. */
  objects: number;
  bytes: number;
  /** Stored, replaced or erased after the inventory was written: the next one proves them. */
  newer: number;
  /** Without a content hash in the inventory, or archived: not proven. */
  unproven: number;
}

/** Objects that are read at once, and lines that are in memory. */
const atOnce = 8;
const linesAtOnce = 200;

/** Compares every object of the bucket with the inventory, byte by byte. */
export async function checkObjects(
  at: Attesting,
  manifest: Manifest,
  counts: ObjectCounts,
  onProgress: () => void,
): Promise<void> {
  const known = new KeySet();
  const tree = new MerkleTree();
  let batch: InventoryLine[] = [];
  const flush = async () => {
    const pairs = batch.flatMap((line) => objectsOf(line).map((object) => ({ line, object })));
    await concurrently(pairs, atOnce, async ({ line, object }) => {
      at.signal.throwIfAborted();
      known.add(object.key);
      const finding = await checkObject(at, object, counts);
      if (finding && (await isExcused(at, manifest, { line, object, ...finding }))) counts.newer++;
      else if (finding) at.found({ ...finding, after: manifest.day });
      onProgress();
    });
    counts.assets += batch.length;
    batch = [];
  };
  for await (const line of linesOf(at, manifest)) {
    tree.add(leafHash(line));
    const entry = JSON.parse(line.toString()) as Entry;
    if ('erased' in entry) continue;
    batch.push(entry);
    if (batch.length === linesAtOnce) await flush();
  }
  await flush();
  if (tree.root().toString('hex') !== manifest.root) {
    at.found({ what: 'altered', key: `the entries of ${manifest.day}`, after: manifest.day, why: 'Merkle root' });
  }
  await findExtra(at, manifest, known, counts);
}

const objectsOf = ({ objects, versions }: InventoryLine): SignedObject[] => [
  ...objects,
  ...versions.flatMap(({ objects: kept, expiresAt }) => kept.map((object) => ({ ...object, expiresAt }))),
];

async function checkObject(
  at: Attesting,
  object: SignedObject,
  counts: ObjectCounts,
): Promise<Omit<Finding, 'after'> | undefined> {
  const { sha256 } = object;
  if (sha256 === null) counts.unproven++;
  try {
    return await compareObject(at, object, counts);
  } catch (error) {
    if (!(error instanceof Archived)) throw error;
    if (sha256 !== null) counts.unproven++;
    return undefined;
  }
}

/** @throws Archived */
async function compareObject(
  { storage, signal }: Attesting,
  { key, versionId, bytes, crc32, sha256 }: SignedObject,
  counts: ObjectCounts,
): Promise<Omit<Finding, 'after'> | undefined> {
  const body = await storage.get(key, { signal, versionId });
  if (!body) return { what: 'missing', key };
  let length = 0;
  body.on('data', (chunk: Buffer) => {
    length += chunk.length;
  });
  const found = await measure(body, signal, { hashed: true });
  counts.objects++;
  counts.bytes += length;
  if (bytes !== null && length !== bytes) return { what: 'altered', key, why: `${length} bytes, ${bytes} were signed` };
  const difference = differenceOf(found, { crc32: crc32 ?? undefined, sha256: sha256 ?? undefined });
  return difference ? { what: 'altered', key, why: `${difference} was signed` } : undefined;
}

/** Reports objects that the inventory does not name. */
async function findExtra(at: Attesting, manifest: Manifest, known: KeySet, counts: ObjectCounts): Promise<void> {
  for await (const { key } of at.storage.list('', { signal: at.signal })) {
    if (known.has(key) || key.startsWith(ours) || key.startsWith(`${draftFolder}/`)) continue;
    if (await isNewer(at, key, manifest)) counts.newer++;
    else at.found({ what: 'extra', key, after: manifest.day });
  }
}

async function isNewer(at: Attesting, key: string, manifest: Manifest): Promise<boolean> {
  for (const media of mediaKeysFrom(key)) if (await isWrittenAfter(at, media, manifest)) return true;
  return false;
}
