import { idSegment, mediaKey, tombstoneKey } from '../../storage/keys.ts';
import type { WaitingErasure } from '../../store/removals/erasures.ts';
import { putJson } from '../record.ts';
import { leaseForRemoval, type RemovalDeps, workOnEach } from './lease-for-removal.ts';
import { type AssetWithVersions, purgeAsset, type UnderLease, withoutRow } from './purge-asset.ts';

const pageSize = 100;

interface EraseDeps extends RemovalDeps {
  /** KEY_TEMPLATE. */
  keyTemplate: string;
}

/**
 * Erases the assets that operators asked to erase. The process may die between any two steps; each may run again:
 *
 * 1. The request saved a tombstone in the database.
 * 2. The asset is leased and becomes `gone`: no worker writes it, and because of the tombstone no sync records it again.
 * 3. A tombstone is written to the bucket, so no rebuild restores the asset.
 * 4. Its objects in the bucket are counted, the count is saved, and they are removed, the records first.
 * 5. The database deletes everything that it knows of the asset.
 */
export async function eraseAssets(deps: EraseDeps): Promise<number> {
  const { store, log, signal } = deps;
  let erased = 0;
  for (let after = ''; !signal.aborted; ) {
    const page = await store.removals.waitingErasures(after, pageSize);
    const fields = ({ erasureId, hash }: WaitingErasure) => ({ erasureId, hash });
    erased += await workOnEach(deps, page, fields, (waiting) => eraseAsset(deps, waiting));
    if (page.length < pageSize) break;
    after = page.at(-1)!.assetId;
  }
  for (const erasureId of await store.removals.finishErasures()) {
    log.info({ event: 'erasure.finished', erasureId }, 'erasure finished');
  }
  return erased;
}

/** False: a worker has leased the asset, so it is tried again later. */
async function eraseAsset(deps: EraseDeps, waiting: WaitingErasure): Promise<boolean> {
  const { store, signal } = deps;
  const { assetId } = waiting;
  const isErased = await leaseForRemoval(deps, assetId, { gone: false }, (asset, lease) =>
    eraseLeased(deps, waiting, asset, lease),
  );
  if (isErased !== undefined) return isErased;
  // GONE_RETENTION removed it meanwhile, or only superseded files are known.
  if (await store.assets.get(assetId)) return false;
  return eraseLeased(deps, waiting, undefined, { signal });
}

/** Adds a key in the folder of the asset's file: a worker may have stored a file there, and died before it recorded that. */
const withUnrecordedKey = (asset: AssetWithVersions, template: string): AssetWithVersions => ({
  ...asset,
  earlierKeys: [...asset.earlierKeys, mediaKey(template, { ...asset, assetId: asset.id, filename: 'any' })],
});

async function eraseLeased(
  deps: EraseDeps,
  waiting: WaitingErasure,
  asset: AssetWithVersions | undefined,
  lease: UnderLease,
): Promise<boolean> {
  const { store, storage, log, keyTemplate } = deps;
  const { erasureId, assetId, hash } = waiting;
  await writeTombstone(deps, waiting, lease.signal);
  const purgeable = asset
    ? withUnrecordedKey(asset, keyTemplate)
    : withoutRow(assetId, await store.versions.ofAsset(assetId));
  const options = { ...lease, isShared: store.removals.isShared };
  if (waiting.objects === null) {
    await store.removals.saveErasureCounts(waiting, await purgeAsset(storage, purgeable, { ...options, dryRun: true }));
  }
  const { left } = await purgeAsset(storage, purgeable, options);
  const isDone = await store.removals.finishAssetErasure({ ...waiting, segment: idSegment(assetId) }, asset, left);
  if (isDone) log.info({ event: 'asset.erased', erasureId, hash, left: left.length }, 'asset erased');
  return isDone;
}

async function writeTombstone(
  { store, storage }: RemovalDeps,
  { hash }: WaitingErasure,
  signal: AbortSignal,
): Promise<void> {
  const tombstone = await store.removals.beginErasing(hash);
  await putJson(storage, tombstoneKey(hash), { version: 1, ...tombstone }, signal);
}
