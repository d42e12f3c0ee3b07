import { storable } from '../source/schemas.ts';
import { idSegment, isDigested } from '../storage/keys.ts';
import type { Store } from '../store/store.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { expectedOf, isSettled } from './expected-objects.ts';

/**
 * Returns the keys that belong to an asset after all. Most keys contain the asset's id; others are found by the key of their media.
 * A key with a digest of the id is also compared with queued assets, because their rows may not name it yet.
 */
export async function ownedAmong({ contents }: Store, keys: string[]): Promise<Set<string>> {
  if (keys.length === 0) return new Set();
  const named = await contents.withIds([...new Set(keys.flatMap((key) => key.split('/').flatMap(idsFrom)))]);
  const stored = await contents.atKeys([...new Set(keys.flatMap(mediaKeysFrom))]);
  const moving = keys.some((key) => key.split('/').some(isDigested)) ? await contents.queued() : [];
  const byId = new Map([...named, ...moving].map((row) => [row.id, row]));
  const bySegment = new Map(moving.map((row) => [idSegment(row.id), row]));
  const byMedia = new Map(stored.map((row) => [row.media!.key, row]));
  const rowsOf = (key: string) => [
    ...key.split('/').flatMap((segment) => [...idsFrom(segment).map((id) => byId.get(id)), bySegment.get(segment)]),
    ...mediaKeysFrom(key).map((mediaKey) => byMedia.get(mediaKey)),
  ];
  return new Set(keys.filter((key) => rowsOf(key).some((row) => row && mayOwn(row, key))));
}

/** The keys of media that this object may be, or be a sidecar of: a sidecar's key is the media's key, a dot and more. */
function mediaKeysFrom(key: string): string[] {
  return [key, ...[...key.matchAll(/\./g)].map(({ index }) => key.slice(0, index))];
}

function idsFrom(segment: string): string[] {
  try {
    return [segment, decodeURIComponent(segment)].map(storable);
  } catch {
    return [storable(segment)];
  }
}

function mayOwn(asset: AssetContents, key: string): boolean {
  const { media, superseded } = asset;
  const isOfMedia = media !== null && (key === media.key || key.startsWith(`${media.key}.`));
  if (asset.isMoving || superseded.includes(key)) return true;
  if (isSettled(asset)) {
    // While work is due, the row may not name all sidecars of the media.
    return (isOfMedia && asset.nextAt !== null) || expectedOf(asset).some((object) => object.key === key);
  }
  // The next attempt at an asset removes the remains of an earlier one.
  return isOfMedia || asset.nextAt !== null;
}
