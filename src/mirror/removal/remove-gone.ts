import { isTooMany, logHeld } from '../../floor/held-changes.ts';
import { leaseForRemoval, type RemovalDeps, workOnEach } from './lease-for-removal.ts';
import { purgeAsset } from './purge-asset.ts';

const pageSize = 100;

/**
 * Removes assets from the bucket that were gone for `retentionMs`, and returns how many. If too many of a company would be
 * removed within a day, only those that an operator has accepted are removed.
 */
export async function removeGone(deps: RemovalDeps, retentionMs: number): Promise<number> {
  const { store, log, signal } = deps;
  const companies = Number.isFinite(retentionMs) ? await store.removals.companiesDue(retentionMs) : [];
  await store.removals.endHeldRemovals(retentionMs);
  let removed = 0;
  for (const { companyId, connectionId, settings, before, notAccepted, ...found } of companies) {
    signal.throwIfAborted();
    const isHeld = found.sample.length > 0 && isTooMany('removed', found, settings);
    const isNew = await store.removals.setHeldRemovals({ companyId, connectionId }, isHeld ? found : undefined);
    if (isNew) logHeld(log, { ...found, kind: 'removed', companyId, connectionId });
    removed += await removeOfCompany(deps, { companyId, before, mostNotAccepted: isHeld ? 0 : notAccepted });
  }
  return removed;
}

/**
 * Removes the due assets of a company whose removal is accepted, and up to `mostNotAccepted` others. More may be due by now than
 * were counted, such as those whose hold was released meanwhile: they wait for the next pass.
 */
async function removeOfCompany(
  deps: RemovalDeps,
  { mostNotAccepted, ...of }: { companyId: string; before: Date; mostNotAccepted: number },
): Promise<number> {
  let removed = 0;
  let left = mostNotAccepted;
  for (let after = ''; ; ) {
    const page = await deps.store.removals.removable({ ...of, onlyAccepted: left <= 0, after, limit: pageSize });
    const accepted = page.filter((asset) => asset.accepted);
    const others = page.filter((asset) => !asset.accepted).slice(0, left);
    left -= others.length;
    const fields = ({ id: assetId }: { id: string }) => ({ assetId });
    removed += await workOnEach(deps, [...accepted, ...others], fields, ({ id, accepted }) =>
      removeAsset(deps, id, accepted),
    );
    if (page.length < pageSize) return removed;
    after = page.at(-1)!.id;
  }
}

/** False: it is back in the library, protected, or leased by a worker. */
async function removeAsset(deps: RemovalDeps, assetId: string, accepted: boolean): Promise<boolean> {
  const { store, storage, log } = deps;
  const isRemoved = await leaseForRemoval(deps, assetId, { gone: true }, async (asset, lease) => {
    const found = await purgeAsset(storage, asset, { ...lease, isShared: store.removals.isShared });
    if (!(await store.removals.finishRemoval(asset, { ...found, accepted }))) return false;
    const { objects, bytes, left } = found;
    const fields = { companyId: asset.companyId, assetId, objects, bytes, left: left.length };
    log.info({ event: 'asset.removed', ...fields }, 'asset removed from the bucket');
    return true;
  });
  return isRemoved ?? false;
}

/** Removes locked versions of removed assets whose lock has ended. */
export async function removeLeftovers(deps: RemovalDeps): Promise<void> {
  const { store, storage, signal } = deps;
  while (!signal.aborted) {
    const page = await store.removals.dueLeftovers(pageSize);
    await workOnEach(
      deps,
      page,
      ({ hash }) => ({ hash }),
      async ({ key, versionId, erased }) => {
        // If an asset was erased, all versions and delete markers go. A removed asset may be back at the same key: only this version goes.
        const options = { signal, ...(!erased && { versionId }) };
        let isLeft = false;
        for await (const { left } of storage.purge(key, options)) {
          if (left?.versionId === versionId) isLeft = true;
        }
        if (!isLeft) await store.removals.leftoverRemoved({ key, versionId });
        return !isLeft;
      },
    );
    if (page.length < pageSize) return;
  }
}
