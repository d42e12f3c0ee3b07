import { NamedError } from '../../floor/errors.ts';
import { leafHash, type MerklePath, MerklePathOf } from '../../storage/merkle.ts';
import type { Envelope } from '../publish/chain.ts';
import type { Manifest } from '../publish/manifest.ts';
import type { PublishedKey } from '../publish/publish-signing-keys.ts';
import { checkDay, type Entry } from './check-days.ts';
import type { Context } from './finding.ts';
import { linesOf } from './read.ts';
import { readChain } from './read-chain.ts';

/** Proves to someone without access to the bucket what the copy had of one asset on a day. */
export interface Proof {
  version: 1;
  day: string;
  /** The asset's line in the inventory: a leaf of the tree. */
  entry: string;
  path: MerklePath;
  manifest: Envelope;
  keys: PublishedKey[];
}

/** Proves what the copy had of an asset on `day`; default: the last day with a manifest. @throws NotProven */
export async function prove(
  context: Context,
  { assetId, day, key }: { assetId: string; day?: string | undefined; key?: string | undefined },
): Promise<Proof> {
  const { statements, keys } = await readChain(context, key);
  const statement = statements.findLast(({ manifest }) => day === undefined || manifest.day === day);
  if (!statement) throw new NotProven(`no signed manifest ${day === undefined ? 'is there' : `is of ${day}`}`);
  const { manifest, envelope, isSigned } = statement;
  if (!isSigned) throw new NotProven(`the manifest of ${manifest.day} is not signed by a trusted key`);
  const state = await checkDay(context, statement);
  if (state !== 'intact') throw new NotProven(`the inventory of ${manifest.day} was ${state}`);
  const found = await find(context, manifest, assetId);
  if (!found) throw new NotProven(`the inventory of ${manifest.day} has no asset ${assetId}`);
  const path = new MerklePathOf(found.index, manifest.assets + manifest.tombstones.count);
  for await (const line of linesOf(context, manifest)) path.add(leafHash(line));
  return { version: 1, day: manifest.day, entry: found.entry, path: path.path(), manifest: envelope, keys };
}

async function find(context: Context, manifest: Manifest, assetId: string) {
  let index = 0;
  for await (const line of linesOf(context, manifest)) {
    const entry = line.toString();
    const content = JSON.parse(entry) as Entry;
    if ('id' in content && content.id === assetId) return { index, entry };
    index++;
  }
  return undefined;
}

/** The bucket does not prove what was asked for. */
class NotProven extends NamedError {}
