import { isTooMany, logHeld } from '../../brake.ts';
import { concurrently } from '../../concurrently.ts';
import type { Log } from '../../log.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';
import { assetsAtOnce, purgeAsset } from './purge-asset.ts';

export interface RemovalDeps {
  store: Store;
  storage: Storage;
  log: Log;
  /** After this time, another process continues where one died. */
  leaseMs: number;
  signal: AbortSignal;
}

const pageSize = 100;

/**
 * Removes assets from the bucket that were gone for `retentionMs`, and returns how many. If too many of a company would be
 * removed within a day, only those are that an operator has accepted.
 */
export async function removeGone(deps: RemovalDeps, retentionMs: number): Promise<number> {
  const { store, log, signal } = deps;
  const companies = Number.isFinite(retentionMs) ? await store.removals.companiesDue(retentionMs) : [];
  await store.removals.holdOnly(companies.map(({ companyId }) => companyId));
  let removed = 0;
  for (const { companyId, connectionId, settings, ...found } of companies) {
    signal.throwIfAborted();
    const isHeld = found.sample.length > 0 && isTooMany('removed', found, settings);
    const isNew = await store.removals.holdCompany({ companyId, connectionId }, isHeld ? found : undefined);
    if (isNew) logHeld(log, { ...found, kind: 'removed', companyId, connectionId });
    removed += await removeOfCompany(deps, { companyId, retentionMs, onlyAccepted: isHeld });
  }
  return removed;
}

async function removeOfCompany(
  deps: RemovalDeps,
  of: { companyId: string; retentionMs: number; onlyAccepted: boolean },
): Promise<number> {
  let removed = 0;
  for (let after = ''; ; ) {
    const page = await deps.store.removals.removable({ ...of, after, limit: pageSize });
    await concurrently(page, assetsAtOnce, async ({ id, accepted }) => {
      deps.signal.throwIfAborted();
      if (await removeAsset(deps, id, accepted)) removed++;
    });
    if (page.length < pageSize) return removed;
    after = page.at(-1)!.id;
  }
}

/** False: it is back in the library, protected, or leased by a worker. */
async function removeAsset({ store, storage, log, leaseMs, signal }: RemovalDeps, id: string, accepted: boolean) {
  const asset = await store.removals.takeForRemoval(id, { gone: true, leaseMs });
  if (!asset) return false;
  let isRemoved = false;
  try {
    const versions = await store.versions.ofAsset(id);
    const found = await purgeAsset(storage, { ...asset, versions }, { signal, isShared: store.removals.isShared });
    isRemoved = await store.removals.removed(asset, { ...found, accepted });
    if (!isRemoved) return false;
    const { objects, bytes, left } = found;
    const fields = { companyId: asset.companyId, assetId: id, objects, bytes, left: left.length };
    log.info({ event: 'asset.removed', ...fields }, 'asset removed from the bucket');
    return true;
  } finally {
    // If it is back in the library, a worker fetches it again.
    if (!isRemoved) await store.removals.stopRemoval(asset).catch(() => {});
  }
}

/** Removes locked versions of removed assets whose lock has ended. */
export async function removeLeftovers({ store, storage, signal }: RemovalDeps): Promise<void> {
  while (!signal.aborted) {
    const page = await store.removals.dueLeftovers(pageSize);
    for (const { key, versionId, erased } of page) {
      // Without a version id, delete markers are removed, too. But a removed asset may be back at the same key.
      const options = { signal, ...(versionId !== '' && !erased && { versionId }) };
      for await (const { left, versionId = '' } of storage.purge(key, options)) {
        if (!left) await store.removals.leftoverRemoved({ key, versionId });
      }
    }
    if (page.length < pageSize) return;
  }
}
