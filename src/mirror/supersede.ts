import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { Asset, Media } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';

type StoredFile = Pick<Media, 'key' | 'version'>;

/** Whether `next` is the stored file again, as in a repair. Its sidecars then stay valid. */
export function isSameFile(stored: StoredFile | null, next: StoredFile): boolean {
  return stored?.version === next.version && stored.key === next.key;
}

/**
 * Prepares the replacement of a stored file by `next`. The worker may die after each step, so the order matters:
 *
 * 1. The row forgets the record and remembers the superseded keys.
 * 2. The record is removed.
 * 3. The new bytes are written, and then the new record, last.
 * 4. `removeSuperseded` removes the objects that no version uses any longer.
 *
 * So no record ever describes bytes that are not its own, and no key is forgotten.
 */
export async function prepareReplacement(
  deps: MirrorDeps,
  { asset, lease }: LeasedAsset,
  next: StoredFile,
): Promise<void> {
  if (!asset.media) return;
  requireLease(await deps.store.assets.replace(lease, supersededKeys(asset, next)));
  await deps.storage.remove(sidecarKeys.record(asset.media.key));
}

/** Removes the objects of superseded versions. Call it only once the new record is written. */
export async function removeSuperseded(
  deps: MirrorDeps,
  { asset, signal }: LeasedAsset,
  current: StoredFile,
  inUse: (string | undefined)[],
): Promise<void> {
  for (const key of new Set([...asset.superseded, ...supersededKeys(asset, current)])) {
    signal.throwIfAborted();
    if (!inUse.includes(key)) await deps.storage.remove(key);
  }
}

function supersededKeys({ media, transcriptKeys, thumbnail }: Asset, next: StoredFile): string[] {
  if (!media || isSameFile(media, next)) return [];
  const sidecars = [...(transcriptKeys ?? []), ...(thumbnail ? [thumbnail.key] : [])];
  return [next.key, media.key, sidecarKeys.record(media.key), ...sidecars];
}
