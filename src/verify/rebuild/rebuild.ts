import { batches } from '../../floor/batches.ts';
import { concurrently } from '../../floor/concurrently.ts';
import { reasonOf } from '../../floor/errors.ts';
import { because } from '../../floor/reasons.ts';
import { isVersionRecord, recordEnding } from '../../mirror/read-record.ts';
import { ours, sidecarKeys, tombstones } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Rebuilt, RebuiltAsset } from '../../store/assets/rebuild.ts';
import type { Store } from '../../store/store.ts';
import { ListedWindow } from './listed-window.ts';
import { readTombstone } from './read-tombstone.ts';
import { readAsset, readVersion } from './rebuilt-asset.ts';

/** The progress of a rebuild, and its result in the end. */
export interface RebuildProgress {
  /** Objects listed so far. */
  objects: number;
  /** All objects; undefined until they are counted. */
  total: number | undefined;
  /** Restored assets, also those of which the records had an older file, and the bytes of their media files. */
  restored: number;
  bytes: number;
  /** Assets that were in the records already. */
  known: number;
  /** Restored assets whose media file differs from the record: it is fetched again. */
  pending: number;
  /** Restored versions. */
  versions: number;
  /** Objects that only have the name of a record, and older records of the same asset. */
  skipped: number;
}

export const nothingRebuilt: RebuildProgress = {
  objects: 0,
  total: undefined,
  restored: 0,
  bytes: 0,
  known: 0,
  pending: 0,
  versions: 0,
  skipped: 0,
};

export interface RebuildDeps {
  store: Pick<Store, 'rebuild' | 'versions' | 'removals' | 'check'> & { changes: Pick<Store['changes'], 'renew'> };
  storage: Storage;
  thumbnails: { mirror: boolean };
}

export interface RebuildOptions {
  /** Called with one sentence for each record that cannot be used as it is. */
  onProblem: (line: string) => void;
  /** With this callback, all objects are counted meanwhile: the bucket is listed twice. */
  onProgress?: ((progress: Readonly<RebuildProgress>) => void) | undefined;
  /** Awaited after each batch, to leave time to other work. */
  pause?: (() => Promise<void>) | undefined;
  signal: AbortSignal;
}

/** Records per batch, and how many are read at once. */
const batchSize = 200;
const readAtOnce = 24;
/** Objects that are remembered while none of them is a record. */
const windowSize = 20_000;

/**
 * Restores the database from the records in the bucket. Only reads the bucket. Can run at any time and any number of times:
 * known assets stay as they are, unless the bucket has a newer file of them, or a tombstone. Memory does not grow with the bucket.
 */
export async function rebuild(deps: RebuildDeps, options: RebuildOptions): Promise<RebuildProgress> {
  const run = new Rebuild(deps, options);
  await deps.store.changes.renew();
  if (!options.onProgress) return run.restoreAll();
  // A listing is much faster than reading the records.
  const stopCounting = new AbortController();
  const counting = count(deps.storage, AbortSignal.any([options.signal, stopCounting.signal])).then(
    (all) => {
      run.progress.total = all;
    },
    () => {},
  );
  try {
    return await run.restoreAll();
  } finally {
    stopCounting.abort();
    await counting;
  }
}

/** Restores the assets whose media is at these keys. */
export async function rebuildKeys(deps: RebuildDeps, keys: string[], options: RebuildOptions): Promise<void> {
  await new Rebuild(deps, options).restore(keys.map(sidecarKeys.record));
}

async function count(storage: Storage, signal: AbortSignal): Promise<number> {
  let all = 0;
  for await (const { key } of storage.list('', { signal })) if (!key.startsWith(ours)) all++;
  return all;
}

class Rebuild {
  readonly progress: RebuildProgress = { ...nothingRebuilt };
  readonly #deps: RebuildDeps;
  readonly #options: RebuildOptions;
  readonly #window: ListedWindow;

  constructor(deps: RebuildDeps, options: RebuildOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#window = new ListedWindow(deps.storage, options.signal);
  }

  async restoreAll(): Promise<RebuildProgress> {
    await this.#restoreTombstones();
    const { progress } = this;
    const window = this.#window;
    let records: string[] = [];
    const versions: string[] = [];
    for await (const object of this.#deps.storage.list('', { signal: this.#options.signal })) {
      if (isVersionRecord(object.key)) {
        versions.push(object.key);
        if (versions.length >= batchSize) await this.#restoreVersions(versions.splice(0));
      }
      if (object.key.startsWith(ours)) continue;
      progress.objects++;
      window.add(object);
      if (object.key.endsWith(recordEnding)) records.push(object.key);
      if (records.length >= batchSize || window.size >= windowSize) {
        await this.#restoreBatch(records);
        records = [];
        window.trim();
      }
    }
    window.complete();
    await this.#restoreBatch(records);
    await this.#restoreVersions(versions);
    progress.total = progress.objects;
    return progress;
  }

  async restore(records: string[]): Promise<void> {
    for (let from = 0; from < records.length; from += batchSize) {
      await this.#restoreBatch(records.slice(from, from + batchSize));
    }
  }

  /** Comes first: an erased asset must not be restored from objects that its erasure could not remove. */
  async #restoreTombstones(): Promise<void> {
    const { storage, store } = this.#deps;
    const { signal, onProblem, pause } = this.#options;
    for await (const objects of batches(storage.list(tombstones, { signal }), batchSize)) {
      const found = await concurrently(objects, readAtOnce, ({ key }) => readTombstone(storage, key, signal));
      for (const [index, tombstone] of found.entries()) {
        if (!tombstone) onProblem(`${objects[index]!.key} is not a tombstone`);
      }
      await store.removals.restoreTombstones(found.filter((tombstone) => tombstone !== undefined));
      await pause?.();
    }
    // Once for all tombstones: it reads all assets.
    await store.removals.eraseAgain();
  }

  async #restoreBatch(keys: string[]): Promise<void> {
    const { onProblem, signal, onProgress, pause } = this.#options;
    const { storage, thumbnails } = this.#deps;
    const deps = { storage, thumbnails, window: this.#window, onProblem, skip: this.#skip, signal };
    const newest = new Map<string, RebuiltAsset>();
    for (const asset of await concurrently(keys, readAtOnce, (key) => readAsset(deps, key))) {
      if (!asset) continue;
      const other = newest.get(asset.id);
      const [taken, older] = other && other.mirroredAt > asset.mirroredAt ? [other, asset] : [asset, other];
      newest.set(asset.id, taken);
      if (older) this.#skip(twoRecords(asset.id, taken.media.key, older.media.key));
    }
    for (const id of await this.#deps.store.removals.erasedAmong([...newest.keys()])) newest.delete(id);
    const outcomes = await this.#addToRecords([...newest.values()]);
    for (const asset of newest.values()) this.#count(asset, outcomes.get(asset.id));
    onProgress?.(this.progress);
    await pause?.();
  }

  async #restoreVersions(keys: string[]): Promise<void> {
    if (keys.length === 0) return;
    const deps = { storage: this.#deps.storage, skip: this.#skip, signal: this.#options.signal };
    const read = await concurrently(keys, readAtOnce, (key) => readVersion(deps, key));
    const found = read.filter((version) => version !== undefined);
    const { store } = this.#deps;
    const erased = await store.removals.erasedAmong(found.map(({ assetId }) => assetId));
    this.progress.versions += await store.versions.add(found.filter(({ assetId }) => !erased.has(assetId)));
    this.#options.onProgress?.(this.progress);
    await this.#options.pause?.();
  }

  /** If the database refuses a batch, each asset is tried alone, so that one bad record does not block the others. */
  async #addToRecords(assets: RebuiltAsset[]): Promise<Map<string, Rebuilt>> {
    const { store } = this.#deps;
    try {
      return await store.rebuild.add(assets);
    } catch (error) {
      await store.check();
      if (assets.length > 1) {
        const each = new Map<string, Rebuilt>();
        for (const asset of assets) for (const [id, became] of await this.#addToRecords([asset])) each.set(id, became);
        return each;
      }
      this.#skip(`${sidecarKeys.record(assets[0]!.media.key)}: the database refused it: ${reasonOf(error)}`);
      return new Map();
    }
  }

  #count(asset: RebuiltAsset, became: Rebuilt | undefined): void {
    const { progress } = this;
    if (!became) return;
    if (became.outcome === 'known') progress.known++;
    else if (became.outcome === 'older') this.#skip(twoRecords(asset.id, became.key, asset.media.key));
    else {
      if (became.outcome === 'newer') this.#skip(twoRecords(asset.id, asset.media.key, became.key));
      else progress.restored++;
      progress.bytes += asset.bytes ?? 0;
      if (asset.state === 'pending') progress.pending++;
      if (asset.reason) this.#options.onProblem(`${asset.media.key}${because(asset.reason)}`);
    }
  }

  readonly #skip = (line: string): void => {
    this.progress.skipped++;
    this.#options.onProblem(line);
  };
}

const twoRecords = (id: string, taken: string, older: string) =>
  `asset ${id} has two records; the newer one belongs to ${taken}, the other to ${older}`;
