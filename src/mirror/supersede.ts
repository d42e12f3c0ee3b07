import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { Asset, Media } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { dropUnfinishedVersion, keepVersion } from './keep-version.ts';
import { storedVersionOf } from './media.ts';

type FileIdentity = Pick<Media, 'key' | 'version'>;

/** Whether `next` is the stored file again, as in a repair. Its sidecars then stay valid. */
export const isSameFile = (stored: Pick<Asset, 'media' | 'detail'>, next: FileIdentity): boolean =>
  stored.media?.key === next.key && storedVersionOf(stored) === next.version;

/**
 * Prepares the replacement of a stored file by `next`. The worker may die after each step, so the order matters:
 *
 * 1. The stored file is kept as a version, if versions are kept: all its objects, and the version's record last.
 * 2. The row has the version, forgets the record and remembers the superseded keys.
 * 3. The record is removed.
 * 4. The new bytes are written, and then the new record, last.
 * 5. `removeSuperseded` removes the objects that no version uses any longer.
 *
 * At any time, at least one is complete: the stored file, its version or the new file. No record ever describes the bytes of
 * another file, and no key is forgotten.
 */
export async function prepareReplacement(deps: MirrorDeps, leased: LeasedAsset, next: FileIdentity): Promise<void> {
  const { asset, lease } = leased;
  if (!asset.media) return;
  const isKept = deps.keepVersions > 0 && !isSameFile(asset, next);
  const version = isKept ? await keepVersion(deps, leased, next) : undefined;
  if (!version) await dropUnfinishedVersion(deps, leased);
  requireLease(await deps.store.assets.beginReplacement(lease, { superseded: supersededKeys(asset, next), version }));
  await deps.storage.remove(sidecarKeys.record(asset.media.key));
}

/** Removes the objects of superseded versions. Call it only once the new record is written. */
export async function removeSuperseded(
  deps: MirrorDeps,
  { asset, signal }: LeasedAsset,
  current: FileIdentity,
  inUse: (string | undefined)[],
): Promise<void> {
  for (const key of new Set([...asset.superseded, ...supersededKeys(asset, current)])) {
    signal.throwIfAborted();
    if (!inUse.includes(key)) await deps.storage.remove(key);
  }
}

function supersededKeys(asset: Asset, next: FileIdentity): string[] {
  const { media, transcriptKeys, thumbnail } = asset;
  if (!media || isSameFile(asset, next)) return [];
  const sidecars = [...(transcriptKeys ?? []), ...(thumbnail ? [thumbnail.key] : [])];
  // The new key, too: if this transfer fails, and the file then gets another name, the object there is removed.
  return [next.key, media.key, sidecarKeys.record(media.key), ...sidecars];
}
