import { Readable } from 'node:stream';
import type { Log } from '../../floor/log.ts';
import type { SigningKeys } from '../../floor/signing.ts';
import { inventoryPrefix } from '../../storage/keys.ts';
import { leafHash, MerkleTree } from '../../storage/merkle.ts';
import type { Storage } from '../../storage/storage.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import type { AssetContents } from '../../store/verifications/contents.ts';
import { storedOf } from '../expected-objects.ts';
import { addToChain, lastLink, type Unchained } from './chain.ts';
import { type InventoryLine, lineOf } from './inventory-line.ts';
import { InventoryTable } from './inventory-table.ts';
import { filesOf, type Manifest, sumsOf } from './manifest.ts';
import { putHashed } from './put-hashed.ts';

export interface InventoryDeps {
  store: Store;
  storage: Storage;
  log: Log;
  /** Undefined: the inventory is not signed. */
  signingKeys?: SigningKeys | undefined;
  /** How long superseded files, and those of deleted assets, are kept, in ms. */
  keepVersions: number;
  goneRetention: number;
  /** Assets per page of the records, per file, and per row group of a Parquet file. */
  pageSize?: number;
  fileSize?: number;
  rowGroupSize?: number;
}

/** `signal`: ends the work when its lease is lost. `fence`: called before files are written or removed; throws if the lease is lost. */
interface UnderLease {
  signal: AbortSignal;
  fence?: () => Promise<void>;
}

/**
 * Writes the inventory of a day: all assets as gzipped JSON lines and as Parquet, the tombstones, then `manifest.json`, which is also
 * added to the chain, and last `SHA256SUMS`, which marks it as complete. Bounded memory. Replaces an earlier inventory of the same day.
 */
export async function writeInventory(
  deps: InventoryDeps,
  options: { day: string; now: Date } & UnderLease,
): Promise<Manifest> {
  const { store, storage, keepVersions, goneRetention } = deps;
  const { day, now, ...lease } = options;
  const { signal, fence } = lease;
  const { pageSize = 1000, fileSize = 50_000, rowGroupSize = 5000 } = deps;
  const started = performance.now();
  const prefix = inventoryPrefix(day);
  // Before anything is replaced: throws if the manifest could not be added to the chain.
  await lastLink(deps, signal);
  await fence?.();
  await storage.remove(`${prefix}SHA256SUMS`);

  const tree = new MerkleTree();
  const manifest = await emptyManifest(deps, { day, now });
  let after = '';
  let more = true;
  /** The lines of one JSON file. Their assets are also added to `table`, for the Parquet file. */
  async function* lines(table: InventoryTable): AsyncGenerator<string> {
    for (let count = 0; more && count < fileSize; ) {
      signal.throwIfAborted();
      const limit = Math.min(pageSize, fileSize - count);
      // One more row shows whether another file follows.
      const rows = await store.contents.describedById({ after, limit: limit + 1 });
      const page = rows.slice(0, limit);
      more = rows.length > limit;
      after = page.at(-1)?.id ?? after;
      count += page.length;
      const versions = Map.groupBy(await store.versions.ofAssets(page.map(({ id }) => id)), ({ assetId }) => assetId);
      for (const asset of page) {
        const own = versions.get(asset.id) ?? [];
        const objects = storedOf(asset);
        const line = lineOf(asset, objects, { versions: own, keepVersions, goneRetention });
        addTo(manifest, asset, line, own);
        table.add({ asset, line, objects });
        yield leaf(tree, line);
      }
    }
  }

  do {
    const part = `assets-${String(manifest.files.length + 1).padStart(5, '0')}`;
    const before = manifest.assets;
    const table = new InventoryTable(rowGroupSize);
    const put = async (name: string, content: Readable) => {
      const written = await putHashed(storage, `${prefix}${name}`, content, lease);
      return { name, assets: manifest.assets - before, ...written };
    };
    manifest.files.push(await put(`${part}.jsonl.gz`, Readable.from(lines(table))));
    manifest.parquet.push(await put(`parquet/${part}.parquet`, Readable.from(table.finish())));
  } while (more);
  const tombstones = await putTombstones(deps, prefix, tree, lease);
  const root = tree.root().toString('hex');
  await fence?.();
  const { link, chained, text } = await addToChain(deps, { ...manifest, tombstones, root }, signal);
  await finish(storage, prefix, { manifest: chained, text }, lease);
  const { number, sha256, keyId } = link;
  const { assets, bytes } = manifest;
  const ms = Math.round(performance.now() - started);
  deps.log.info({ event: 'inventory.written', day, assets, bytes, number, sha256, keyId, ms }, 'inventory written');
  return chained;
}

/** The manifest of a day, to which the assets are then added. */
async function emptyManifest({ store, storage }: InventoryDeps, { day, now }: { day: string; now: Date }) {
  const manifest: Omit<Unchained, 'tombstones' | 'root'> = {
    version: 1,
    day,
    storage: storage.name,
    writtenAt: now.toISOString(),
    cursor: await store.changes.currentCursor(),
    assets: 0,
    byState: {},
    skipped: 0,
    objects: 0,
    bytes: 0,
    versions: { count: 0, bytes: 0 },
    files: [],
    parquet: [],
  };
  return manifest;
}

/** The line of an entry. Its JSON becomes a leaf of the tree. */
function leaf(tree: MerkleTree, entry: object): string {
  const json = JSON.stringify(entry);
  tree.add(leafHash(json));
  return `${json}\n`;
}

async function putTombstones(
  { store, storage, pageSize = 1000 }: InventoryDeps,
  prefix: string,
  tree: MerkleTree,
  lease: UnderLease,
): Promise<Manifest['tombstones']> {
  let count = 0;
  async function* lines(): AsyncGenerator<string> {
    for (let after = ''; ; ) {
      const page = await store.removals.tombstones({ after, limit: pageSize });
      for (const { hash, erasedAt } of page) yield leaf(tree, { erased: hash, erasedAt: erasedAt.toISOString() });
      count += page.length;
      if (page.length < pageSize) return;
      after = page.at(-1)!.hash;
    }
  }
  const name = 'tombstones.jsonl.gz';
  const written = await putHashed(storage, `${prefix}${name}`, Readable.from(lines()), lease);
  return { name, count, ...written };
}

function addTo(
  manifest: Pick<Manifest, 'versions' | 'assets' | 'skipped' | 'byState' | 'objects' | 'bytes'>,
  asset: AssetContents,
  line: InventoryLine,
  versions: AssetVersion[],
): void {
  manifest.versions.count += versions.length;
  for (const { bytes } of versions) manifest.versions.bytes += bytes;
  manifest.assets++;
  if (asset.skipped) manifest.skipped++;
  else manifest.byState[line.state] = (manifest.byState[line.state] ?? 0) + 1;
  manifest.objects += line.objects.length;
  for (const { bytes } of line.objects) manifest.bytes += bytes ?? 0;
}

/** Writes the manifest, removes files of an earlier inventory, and writes the checksums. */
async function finish(
  storage: Storage,
  prefix: string,
  { manifest, text }: { manifest: Manifest; text: string },
  lease: UnderLease,
): Promise<void> {
  const stated = await putHashed(storage, `${prefix}manifest.json`, Readable.from([Buffer.from(text)]), lease);
  const wanted = new Set(filesOf(manifest, stated.sha256).map(({ name }) => `${prefix}${name}`));
  for await (const { key } of storage.list(prefix, lease)) {
    if (wanted.has(key)) continue;
    await lease.fence?.();
    await storage.remove(key);
  }
  await storage.put(`${prefix}SHA256SUMS`, sumsOf(manifest, stated.sha256), { contentType: 'text/plain', ...lease });
}

/** `2026-01-31`, in UTC. */
export function dayOf(now: Date): string {
  return now.toISOString().slice(0, 10);
}
