import { idSegment, sidecarKeys, versionKeys } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Asset, AssetVersion } from '../../store/database/schema.ts';
import type { Removed } from '../../store/removals/remove.ts';

/** An asset with its kept versions. */
export type AssetWithVersions = Asset & { versions: AssetVersion[] };
type Purgeable = Pick<
  AssetWithVersions,
  | 'id'
  | 'media'
  | 'recordKey'
  | 'transcriptKeys'
  | 'thumbnail'
  | 'sidecarFiles'
  | 'superseded'
  | 'earlierKeys'
  | 'upload'
  | 'versions'
>;

/** An asset of which the database has no row. */
export const withoutRow = (id: string, versions: AssetVersion[]): Purgeable => ({
  id,
  versions,
  media: null,
  recordKey: null,
  transcriptKeys: null,
  thumbnail: null,
  upload: null,
  superseded: [],
  earlierKeys: [],
  sidecarFiles: {},
});

/**
 * What to purge: the asset's own folders, and each key that is in none of them. The asset's own record comes first, so that a rebuild never
 * finds an asset of which a part is removed.
 */
async function keysAndFoldersOf(asset: Purgeable, isShared: IsShared): Promise<string[]> {
  const { id, media, recordKey, transcriptKeys, thumbnail, sidecarFiles, upload, superseded, earlierKeys } = asset;
  const records = [recordKey, media && sidecarKeys.record(media.key)].filter((key) => typeof key === 'string');
  // After a rebuild, `sidecarFiles` may lack some.
  const sidecars = [...(transcriptKeys ?? []), thumbnail?.key, ...Object.keys(sidecarFiles)];
  const older = asset.versions.flatMap(({ files }) => files.map(({ key }) => key));
  const own = idSegment(id);
  const all = [...records, media?.key, upload?.key, ...sidecars, ...superseded, ...earlierKeys, ...older].filter(
    (key) => typeof key === 'string',
  );
  const folders = new Set(all.map((key) => folderOf(key, own)).filter((folder) => folder !== undefined));
  // If a project has the id of the asset, the folder may have other assets: then only single keys are purged.
  for (const folder of folders) if (await isShared(folder, id)) folders.delete(folder);
  const places = all.map((key) => [...folders].find((folder) => key.startsWith(folder)) ?? key);
  return [...new Set([...records, ...places, `${versionKeys.prefix}${own}/`])];
}

/** While `signal` is not aborted and `fence` does not throw, no other process has the asset. */
export interface UnderLease {
  signal: AbortSignal;
  fence?: (() => Promise<void>) | undefined;
}

/** Whether another asset has its media in a folder. */
export type IsShared = (folder: string, assetId: string) => Promise<boolean>;

/** `c/p/a/` of `c/p/a/film.mp4`; undefined if no folder has the asset's id as its name. */
function folderOf(key: string, own: string): string | undefined {
  const segments = key.split('/');
  const at = segments.lastIndexOf(own, segments.length - 2);
  return at >= 0 ? `${segments.slice(0, at + 1).join('/')}/` : undefined;
}

/** Removes all objects of an asset, with all their versions. `dryRun`: only counts them. */
export async function purgeAsset(
  storage: Storage,
  asset: Purgeable,
  options: UnderLease & { dryRun?: boolean; isShared: IsShared },
): Promise<Removed> {
  const found: Removed = { objects: 0, bytes: 0, left: [] };
  const seen = new Set<string>();
  if (asset.upload && !options.dryRun) await storage.uploads.abort(asset.upload);
  for (const place of await keysAndFoldersOf(asset, options.isShared)) {
    for await (const { key, versionId, bytes, left } of storage.purge(place, options)) {
      options.signal.throwIfAborted();
      const name = JSON.stringify([key, versionId]);
      if (seen.has(name)) continue;
      seen.add(name);
      found.objects++;
      found.bytes += bytes;
      if (left) found.left.push({ key, ...left, bytes, lockedUntil: left.lockedUntil ?? null });
    }
  }
  return found;
}
