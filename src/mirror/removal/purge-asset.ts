import { idSegment, sidecarKeys, versionKeys } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Asset, AssetVersion } from '../../store/database/schema.ts';
import type { Leftover, Removed } from '../../store/removals/remove.ts';

/** Assets that are removed at a time. */
export const assetsAtOnce = 8;

type Stored = Pick<Asset, 'id' | 'media' | 'recordKey' | 'superseded' | 'sidecarFiles' | 'upload'> & {
  versions: AssetVersion[];
};

/**
 * Where the objects of an asset are, with those of superseded files: the folder of each key that has the asset's own folder,
 * else the key itself. The records come first, so that a rebuild finds no half of an asset.
 */
function placesOf(asset: Stored): string[] {
  const { id, media, recordKey, superseded, sidecarFiles, upload, versions } = asset;
  const records = [recordKey, media && sidecarKeys.record(media.key)].filter((key) => typeof key === 'string');
  const keys = [...records, media?.key, upload?.key, ...superseded, ...Object.keys(sidecarFiles)];
  const older = versions.flatMap(({ files }) => files.map(({ key }) => key));
  const own = idSegment(id);
  const folders = [...keys, ...older].filter((key) => typeof key === 'string').map((key) => folderOf(key, own) ?? key);
  return [...new Set([...records, ...folders, `${versionKeys.prefix}${own}/`])];
}

/** `c/p/a/` of `c/p/a/film.mp4`; undefined if the asset has no folder of its own there. */
function folderOf(key: string, own: string): string | undefined {
  const segments = key.split('/');
  const at = segments.indexOf(own, 1);
  return at > 0 && at < segments.length - 1 ? `${segments.slice(0, at + 1).join('/')}/` : undefined;
}

/** Removes all objects of an asset, with all their versions. `dryRun`: only counts them. */
export async function purgeAsset(
  storage: Storage,
  asset: Stored,
  options: { signal: AbortSignal; dryRun?: boolean },
): Promise<Removed> {
  const found: Removed = { objects: 0, bytes: 0, left: [] };
  const seen = new Set<string>();
  if (asset.upload && !options.dryRun) await storage.uploads.abort(asset.upload);
  for (const place of placesOf(asset)) {
    for await (const { key, versionId, bytes, left } of storage.purge(place, options)) {
      options.signal.throwIfAborted();
      const name = JSON.stringify([key, versionId]);
      if (seen.has(name)) continue;
      seen.add(name);
      found.objects++;
      found.bytes += bytes;
      const leftover: Leftover = { key, versionId: versionId ?? null, bytes, lockedUntil: left?.lockedUntil ?? null };
      if (left) found.left.push(leftover);
    }
  }
  return found;
}
