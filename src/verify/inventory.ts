import { createHash } from 'node:crypto';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Log } from '../log.ts';
import { inventoryPrefix } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';
import { expectedOf } from './expected-objects.ts';
import { lineOf } from './inventory-line.ts';

export interface InventoryDeps {
  store: Store;
  storage: Storage;
  log: Log;
  /** Assets per page of the records, and per file. */
  pageSize?: number;
  fileSize?: number;
}

export interface Manifest {
  version: 1;
  day: string;
  storage: string;
  writtenAt: string;
  assets: number;
  byState: Record<string, number>;
  /** Assets skipped by a filter; `byState` does not count them. */
  skipped: number;
  objects: number;
  bytes: number;
  /** Superseded files that are kept, and the bytes of all their objects. */
  versions: { count: number; bytes: number };
  files: { name: string; assets: number; bytes: number; sha256: string }[];
}

/**
 * Writes the inventory of a day: all assets as gzipped JSON lines, then `manifest.json`, and last `SHA256SUMS`, which marks
 * it as complete. Bounded memory. Replaces an earlier inventory of the same day.
 */
export async function writeInventory(
  deps: InventoryDeps,
  options: { day: string; now: Date; signal: AbortSignal },
): Promise<Manifest> {
  const { store, storage } = deps;
  const { day, signal } = options;
  const { pageSize = 1000, fileSize = 50_000 } = deps;
  const started = performance.now();
  const prefix = inventoryPrefix(day);
  const sumsKey = `${prefix}SHA256SUMS`;
  await storage.remove(sumsKey);

  const manifest: Manifest = {
    version: 1,
    day,
    storage: storage.name,
    writtenAt: options.now.toISOString(),
    assets: 0,
    byState: {},
    skipped: 0,
    objects: 0,
    bytes: 0,
    versions: { count: 0, bytes: 0 },
    files: [],
  };
  let after = '';
  let more = true;
  /** The lines of one file. */
  async function* lines(): AsyncGenerator<string> {
    for (let count = 0; more && count < fileSize; ) {
      signal.throwIfAborted();
      const limit = Math.min(pageSize, fileSize - count);
      // One more row shows whether there is another file.
      const rows = await store.contents.byId({ after, limit: limit + 1 });
      const page = rows.slice(0, limit);
      more = rows.length > limit;
      after = page.at(-1)?.id ?? after;
      count += page.length;
      const versions = Map.groupBy(await store.versions.ofAssets(page.map(({ id }) => id)), ({ assetId }) => assetId);
      for (const asset of page) {
        const own = versions.get(asset.id) ?? [];
        const line = lineOf(asset, expectedOf(asset), own);
        manifest.versions.count += own.length;
        for (const { bytes } of own) manifest.versions.bytes += bytes;
        manifest.assets++;
        if (asset.skipped !== null) manifest.skipped++;
        else manifest.byState[line.state] = (manifest.byState[line.state] ?? 0) + 1;
        manifest.objects += line.objects.length;
        for (const { bytes } of line.objects) manifest.bytes += bytes ?? 0;
        yield `${JSON.stringify(line)}\n`;
      }
    }
  }

  do {
    const name = `assets-${String(manifest.files.length + 1).padStart(5, '0')}.jsonl.gz`;
    const before = manifest.assets;
    const written = await putHashed(storage, `${prefix}${name}`, Readable.from(lines()), signal);
    manifest.files.push({ name, assets: manifest.assets - before, ...written });
  } while (more);
  const text = Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
  const stated = await putHashed(storage, `${prefix}manifest.json`, Readable.from([text]), signal);
  const files = [...manifest.files, { name: 'manifest.json', ...stated }];

  const wanted = new Set(files.map(({ name }) => `${prefix}${name}`));
  for await (const { key } of storage.list(prefix, { signal })) if (!wanted.has(key)) await storage.remove(key);
  const sums = files.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join('');
  await storage.put(sumsKey, sums, { contentType: 'text/plain', signal });
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

/** How many assets of an inventory were pending when it was written. */
export function onTheirWay({ byState }: Manifest): number {
  return (byState.pending ?? 0) + (byState.transferring ?? 0);
}

/** `2026-01-31`, in UTC. */
export function dayOf(now: Date): string {
  return now.toISOString().slice(0, 10);
}

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
  const zipped = key.endsWith('.gz');
  const steps = zipped ? [source, createGzip(), hashed] : [source, hashed];
  const contentType = zipped ? 'application/gzip' : 'application/json';
  await Promise.all([pipeline(steps, { signal }), storage.put(key, hashed, { contentType, signal })]).catch((error) => {
    signal.throwIfAborted();
    throw error;
  });
  return { bytes, sha256: hash.digest('hex') };
}
