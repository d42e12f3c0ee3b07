import { concurrently } from '../../floor/concurrently.ts';
import { bothClocks, keepLease } from '../../floor/keep-lease.ts';
import type { Log } from '../../floor/log.ts';
import type { Storage } from '../../storage/storage.ts';
import { throwIfUnavailable } from '../../storage/throw-if-unavailable.ts';
import { isUnreachable } from '../../store/database/unreachable.ts';
import type { Store } from '../../store/store.ts';
import type { AssetWithVersions, UnderLease } from './purge-asset.ts';

export interface RemovalDeps {
  store: Store;
  storage: Storage;
  log: Log;
  /** How long the lease of a dead process lasts; then another one continues. */
  leaseMs: number;
  signal: AbortSignal;
}

/** Assets that are removed at a time. */
const atOnce = 8;

/**
 * Works on each item, and returns for how many `work` returned true. One that fails is logged with its `fields` and tried again
 * in the next pass. @throws if the bucket or the database cannot be used
 */
export async function workOnEach<T>(
  { storage, log, signal }: RemovalDeps,
  items: T[],
  fields: (item: T) => object,
  work: (item: T) => Promise<boolean>,
): Promise<number> {
  const results = await concurrently(items, atOnce, async (item) => {
    signal.throwIfAborted();
    try {
      return await work(item);
    } catch (err) {
      if (signal.aborted || isUnreachable(err)) throw err;
      await throwIfUnavailable(storage, err);
      log.warn({ event: 'removal.failed', ...fields(item), err }, 'removal failed, will retry');
      return false;
    }
  });
  return results.filter(Boolean).length;
}

/**
 * Leases an asset while `remove` removes it; with `gone`, only if it is still gone and not protected. `remove` returns whether it
 * deleted the row. Undefined: the asset could not be leased.
 */
export async function leaseForRemoval(
  { store, leaseMs, signal: stop }: RemovalDeps,
  id: string,
  { gone }: { gone: boolean },
  remove: (asset: AssetWithVersions, lease: UnderLease) => Promise<boolean>,
): Promise<boolean | undefined> {
  const since = bothClocks();
  const asset = await store.removals.takeForRemoval(id, { gone, leaseMs });
  if (!asset) return undefined;
  const renew = () => store.removals.renewRemoval(asset, leaseMs);
  const kept = keepLease('an asset that is being removed', { leaseMs, stop, since, renew });
  let isRemoved = false;
  try {
    if (!(await store.removals.beginRemoval(asset, { erase: !gone }))) return false;
    const versions = await store.versions.ofAsset(id);
    isRemoved = await remove({ ...asset, versions }, kept);
    return isRemoved;
  } finally {
    kept.end();
    // If it is back in the library, a worker fetches it again.
    if (!isRemoved) await store.removals.stopRemoval(asset).catch(() => {});
  }
}
