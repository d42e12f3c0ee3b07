import { batches } from '../../floor/batches.ts';
import { concurrently } from '../../floor/concurrently.ts';
import { Archived, reasonOf } from '../../floor/errors.ts';
import { draftFolder } from '../../storage/directory/root.ts';
import { ours } from '../../storage/keys.ts';
import { leafHash, MerkleTree } from '../../storage/merkle.ts';
import { measure } from '../../storage/meter.ts';
import { differenceOf } from '../compare-object.ts';
import type { InventoryLine } from '../publish/inventory-line.ts';
import type { Manifest } from '../publish/manifest.ts';
import type { Entry } from './check-days.ts';
import type { Context, Finding, SignedObject } from './finding.ts';
import { KeySet } from './key-set.ts';
import { isLaterChange, isWrittenAfter } from './later-changes.ts';
import { linesOf } from './read.ts';

export interface ObjectCounts {
  /** Assets of the inventory that were compared so far. */
  assets: number;
  /** All assets of the inventory. */
  total: number;
  /** Read and compared. */
  objects: number;
  bytes: number;
}

/** Objects that are read at once, and lines that are in memory. */
const atOnce = 8;
const linesAtOnce = 200;

/** Compares every object of the bucket with the inventory, byte by byte. */
export async function checkObjects(
  context: Context,
  manifest: Manifest,
  counts: ObjectCounts,
  onProgress: () => void,
): Promise<void> {
  const known = new KeySet();
  const tree = new MerkleTree();
  for await (const lines of batches(linesOf(context, manifest), linesAtOnce)) {
    for (const line of lines) tree.add(leafHash(line));
    const entries = lines.map((line) => JSON.parse(line.toString()) as Entry);
    const assets = entries.flatMap((entry) => ('erased' in entry ? [] : [entry]));
    const pairs = assets.flatMap((line) => objectsOf(context, line).map((object) => ({ line, object })));
    await concurrently(pairs, atOnce, async ({ line, object }) => {
      context.signal.throwIfAborted();
      known.add(object.key);
      const difference = await checkObject(context, object, counts);
      if (difference) {
        const isProblem = difference.what !== 'unproven';
        const isLater = isProblem && (await isLaterChange(context, manifest, { line, object, ...difference }));
        context.found({ ...(isLater ? changedOnPurpose(object.key) : difference), after: manifest.day });
      }
      onProgress();
    });
    counts.assets += assets.length;
  }
  if (tree.root().toString('hex') !== manifest.root) {
    context.found({ what: 'altered', key: `the entries of ${manifest.day}`, after: manifest.day, why: 'Merkle root' });
  }
  await findExtra(context, manifest, known);
}

function objectsOf({ hasVersions }: Context, { objects, versions }: InventoryLine): SignedObject[] {
  const superseded = versions.flatMap(({ objects, expiresAt }) => objects.map((object) => ({ ...object, expiresAt })));
  return [...objects, ...superseded.filter(({ versionId }) => hasVersions || versionId === undefined)];
}

type Difference = Omit<Finding, 'after'>;

/** Something in the bucket says so, which is no proof. */
const changedOnPurpose = (key: string): Difference => ({
  what: 'unproven',
  key,
  why: 'changed or removed on purpose after the inventory',
});

/** One object that cannot be read must not hide what the others show. */
async function checkObject(
  context: Context,
  object: SignedObject,
  counts: ObjectCounts,
): Promise<Difference | undefined> {
  try {
    return await compareObject(context, object, counts);
  } catch (error) {
    context.signal.throwIfAborted();
    // Throws if nothing of the bucket can be read.
    for await (const _ of context.storage.list('', { signal: context.signal })) break;
    return { what: 'unproven', key: object.key, why: `cannot be read: ${reasonOf(error)}` };
  }
}

async function compareObject(
  { storage, signal }: Context,
  { key, versionId, bytes, crc32, sha256 }: SignedObject,
  counts: ObjectCounts,
): Promise<Difference | undefined> {
  const body = await storage.get(key, { signal, versionId }).catch((error) => {
    if (!(error instanceof Archived)) throw error;
    return 'archived' as const;
  });
  if (body === 'archived') return { what: 'unproven', key, why: 'archived' };
  if (!body) return { what: 'missing', key };
  let length = 0;
  body.on('data', (chunk: Buffer) => {
    length += chunk.length;
  });
  const found = await measure(body, signal, { hashed: true });
  counts.objects++;
  counts.bytes += length;
  if (bytes !== null && length !== bytes)
    return { what: 'altered', key, why: `has ${length} bytes, but ${bytes} were signed` };
  const difference = differenceOf(found, sha256 ? { sha256 } : { crc32: crc32 ?? undefined });
  if (difference) {
    const { checksum, expected, got } = difference;
    return { what: 'altered', key, why: `has ${checksum} ${got}, but ${expected} was signed` };
  }
  return sha256 === null ? { what: 'unproven', key, why: 'no content hash was signed' } : undefined;
}

/** Reports objects that the inventory does not name. */
async function findExtra(context: Context, manifest: Manifest, known: KeySet): Promise<void> {
  for await (const { key } of context.storage.list('', { signal: context.signal })) {
    if (known.has(key) || key.startsWith(ours) || key.startsWith(`${draftFolder}/`)) continue;
    const finding: Difference = (await isNewer(context, key, manifest))
      ? changedOnPurpose(key)
      : { what: 'extra', key };
    context.found({ ...finding, after: manifest.day });
  }
}

/** Whether the record of its media was written after the inventory. A sidecar's key is its media's key with one or two endings. */
async function isNewer(context: Context, key: string, manifest: Manifest): Promise<boolean> {
  for (const media of [key, key.replace(/\.[^.]*$/, ''), key.replace(/\.[^.]*\.[^.]*$/, '')]) {
    if (await isWrittenAfter(context, media, manifest)) return true;
  }
  return false;
}
