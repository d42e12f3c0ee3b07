import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Log } from '../log.ts';
import { inventoryPrefix } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type { AssetVersion } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { expectedOf } from './expected-objects.ts';
import { type InventoryLine, lineOf } from './inventory-line.ts';
import { InventoryTable } from './inventory-table.ts';

export interface InventoryDeps {
  store: Store;
  storage: Storage;
  log: Log;
  /** Assets per page of the records, per file, and per row group of a Parquet file. */
  pageSize?: number;
  fileSize?: number;
  rowGroupSize?: number;
}

export interface Manifest {
  version: 1;
  day: string;
  storage: string;
  writtenAt: string;
  /** The feed after it has everything that this inventory misses. */
  cursor: string;
  assets: number;
  byState: Record<string, number>;
  /** Assets skipped by a filter; `byState` does not count them. */
  skipped: number;
  objects: number;
  bytes: number;
  /** Superseded files that are kept, and the bytes of all their objects. */
  versions: { count: number; bytes: number };
  files: InventoryFile[];
  /** The same assets as tables: each has those of the file at its position in `files`. */
  parquet: InventoryFile[];
}

interface InventoryFile {
  name: string;
  assets: number;
  bytes: number;
  sha256: string;
}

/**
 * Writes the inventory of a day: all assets as gzipped JSON lines and as Parquet, then `manifest.json`, and last `SHA256SUMS`, which
 * marks it as complete. Bounded memory. Replaces an earlier inventory of the same day.
 */
export async function writeInventory(
  deps: InventoryDeps,
  options: { day: string; now: Date; signal: AbortSignal },
): Promise<Manifest> {
  const { store, storage } = deps;
  const { day, signal } = options;
  const { pageSize = 1000, fileSize = 50_000, rowGroupSize = 5000 } = deps;
  const started = performance.now();
  const prefix = inventoryPrefix(day);
  await storage.remove(`${prefix}SHA256SUMS`);

  const manifest: Manifest = {
    version: 1,
    day,
    storage: storage.name,
    writtenAt: options.now.toISOString(),
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
  let after = '';
  let more = true;
  /** The lines of one file. The same assets are added to its table. */
  async function* lines(table: InventoryTable): AsyncGenerator<string> {
    for (let count = 0; more && count < fileSize; ) {
      signal.throwIfAborted();
      const limit = Math.min(pageSize, fileSize - count);
      // One more row shows whether there is another file.
      const rows = await store.contents.describedById({ after, limit: limit + 1 });
      const page = rows.slice(0, limit);
      more = rows.length > limit;
      after = page.at(-1)?.id ?? after;
      count += page.length;
      const versions = Map.groupBy(await store.versions.ofAssets(page.map(({ id }) => id)), ({ assetId }) => assetId);
      for (const asset of page) {
        const own = versions.get(asset.id) ?? [];
        const objects = expectedOf(asset);
        const line = lineOf(asset, objects, own);
        addTo(manifest, asset, line, own);
        table.add({ asset, line, objects });
        yield `${JSON.stringify(line)}\n`;
      }
    }
  }

  do {
    const part = `assets-${String(manifest.files.length + 1).padStart(5, '0')}`;
    const before = manifest.assets;
    const table = new InventoryTable(rowGroupSize);
    const put = async (name: string, content: Readable) => {
      const written = await putHashed(storage, `${prefix}${name}`, content, signal);
      return { name, assets: manifest.assets - before, ...written };
    };
    manifest.files.push(await put(`${part}.jsonl.gz`, Readable.from(lines(table))));
    manifest.parquet.push(await put(`parquet/${part}.parquet`, Readable.from(table.finish())));
  } while (more);
  await complete(storage, prefix, manifest, signal);
  deps.log.info(
    {
      event: 'inventory.written',
      day,
      assets: manifest.assets,
      bytes: manifest.bytes,
      ms: Math.round(performance.now() - started),
    },
    'inventory written',
  );
  return manifest;
}

function addTo(manifest: Manifest, asset: AssetContents, line: InventoryLine, versions: AssetVersion[]): void {
  manifest.versions.count += versions.length;
  for (const { bytes } of versions) manifest.versions.bytes += bytes;
  manifest.assets++;
  if (asset.skipped !== null) manifest.skipped++;
  else manifest.byState[line.state] = (manifest.byState[line.state] ?? 0) + 1;
  manifest.objects += line.objects.length;
  for (const { bytes } of line.objects) manifest.bytes += bytes ?? 0;
}

/** Writes the manifest, removes files of an earlier inventory, and writes the checksums. */
async function complete(storage: Storage, prefix: string, manifest: Manifest, signal: AbortSignal): Promise<void> {
  const text = Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
  const stated = await putHashed(storage, `${prefix}manifest.json`, Readable.from([text]), signal);
  const files = [...manifest.files, ...manifest.parquet, { name: 'manifest.json', ...stated }];
  const wanted = new Set(files.map(({ name }) => `${prefix}${name}`));
  for await (const { key } of storage.list(prefix, { signal })) if (!wanted.has(key)) await storage.remove(key);
  const sums = files.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join('');
  await storage.put(`${prefix}SHA256SUMS`, sums, { contentType: 'text/plain', signal });
}

/** How many assets of an inventory were pending when it was written. */
export function onTheirWay({ byState }: Manifest): number {
  return (byState.pending ?? 0) + (byState.transferring ?? 0);
}

/** `2026-01-31`, in UTC. */
export function dayOf(now: Date): string {
  return now.toISOString().slice(0, 10);
}

const contentTypes: Record<string, string> = {
  '.gz': 'application/gzip',
  '.json': 'application/json',
  '.parquet': 'application/vnd.apache.parquet',
};

/** Stores a stream of any length, gzipped for `.gz` keys. Returns its stored size and hash. */
async function putHashed(storage: Storage, key: string, source: Readable, signal: AbortSignal) {
  const hash = createHash('sha256');
  let bytes = 0;
  const hashed = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
  });
  const steps = key.endsWith('.gz') ? [source, createGzip(), hashed] : [source, hashed];
  const contentType = contentTypes[extname(key)];
  await Promise.all([pipeline(steps, { signal }), storage.put(key, hashed, { contentType, signal })]).catch((error) => {
    signal.throwIfAborted();
    throw error;
  });
  return { bytes, sha256: hash.digest('hex') };
}
