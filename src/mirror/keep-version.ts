import type { Reason } from '../floor/reason-codes.ts';
import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { type ApiAsset, versionOf } from '../source/schemas.ts';
import { versionKeys } from '../storage/keys.ts';
import { crc32At } from '../storage/meter.ts';
import type { Storage } from '../storage/storage.ts';
import { databaseTime, note } from '../store/assets/history.ts';
import type { AssetVersion, Media, VersionFile } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { type AssetRecord, putJson, recordOf } from './record.ts';
import { type StoredFile, storedFiles } from './stored-files.ts';

/**
 * The record of a superseded file, at `versionKeys.record`: its earlier record, and where each of its objects is now.
 * The record is written last, so a version with a record is complete, or is just being removed.
 */
export interface VersionRecord extends AssetRecord {
  /** ISO 8601, like `mirroredAt`. */
  replacedAt: string;
  reason: Reason;
  files: VersionFile[];
}

const day = 86_400_000;

/**
 * Keeps the stored file of an asset, with its sidecars and its record, before `next` replaces it. Undefined if there is no
 * correct copy to keep. May be repeated: the row remembers the time, so the objects go to the same keys.
 */
export async function keepVersion(
  deps: MirrorDeps,
  leased: LeasedAsset,
  next: Pick<Media, 'key' | 'version'>,
): Promise<AssetVersion | undefined> {
  const { storage, store, log } = deps;
  const { asset, lease, signal } = leased;
  const { media, detail } = asset;
  // `media.version` is empty for a damaged file, and differs from `detail` until the record of the file is written.
  if (!media || !detail || media.version !== versionOf(detail as ApiAsset)) return undefined;
  // A version that was begun long ago would expire too early, so it is begun again.
  if (asset.keepingAt && databaseTime(lease) - asset.keepingAt.getTime() > day)
    await dropUnfinishedVersion(deps, leased);
  const replacedAt = await store.versions.begin(lease);
  requireLease(replacedAt !== undefined);

  const files: VersionFile[] = [];
  for (const file of storedFiles(asset, media)) {
    signal.throwIfAborted();
    const kept = await keepFile(storage, file, versionKeys.copy(asset.id, replacedAt!, file.key), signal);
    if (kept) {
      files.push(kept);
      continue;
    }
    const fields = { assetId: asset.id, key: file.key, role: file.role };
    log.warn({ event: 'version.not_kept', ...fields }, 'superseded file not kept: missing or damaged');
    if (file.role === 'media') return undefined;
  }
  const reason: Reason = { code: 'superseded', changed: changesFrom(media, next) };
  const mirroredAt = asset.mirroredAt ?? asset.firstSeenAt;
  const version: AssetVersion = {
    assetId: asset.id,
    replacedAt: replacedAt!,
    companyId: asset.companyId,
    projectId: (detail as ApiAsset).projectId ?? null,
    mirroredAt,
    reason,
    media,
    files,
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
  };
  const { companyId } = asset;
  const was = recordOf({ companyId, api: detail, media, sidecars: asset, mirroredAt: mirroredAt.getTime() });
  const record: VersionRecord = { ...was, replacedAt: replacedAt!.toISOString(), reason, files };
  await putJson(storage, versionKeys.record(asset.id, replacedAt!), record, signal);
  note(lease, 'version_kept', { bytes: version.bytes });
  return version;
}

/** Removes the unfinished version that an earlier lease began. */
export async function dropUnfinishedVersion(deps: MirrorDeps, { asset, lease, signal }: LeasedAsset): Promise<void> {
  if (!asset.keepingAt) return;
  await removeBegun(deps.storage, asset.id, asset.keepingAt, signal);
  requireLease(await deps.store.versions.forget(lease));
}

/** Removes the objects of a version that was begun at that time. */
export async function removeBegun(storage: Storage, assetId: string, at: Date, signal: AbortSignal): Promise<void> {
  await storage.remove(versionKeys.record(assetId, at));
  for await (const { key } of storage.list(versionKeys.folder(assetId, at), { signal })) await storage.remove(key);
}

/** Undefined if the object is missing, or is not the one that was stored. Without ETags, only the length is compared. */
async function keepFile(
  storage: Storage,
  file: StoredFile,
  as: string,
  signal: AbortSignal,
): Promise<VersionFile | undefined> {
  const { role, key, bytes, etag, crc32, sha256 } = file;
  const found = await storage.head(key, { signal });
  if (!found || (bytes !== undefined && found.bytes !== bytes)) return undefined;
  // A copied bucket has other ETags: then the content decides.
  const isOther = etag !== null && found.etag !== undefined && found.etag !== etag;
  if (isOther && (await crc32At(storage, key, { signal })) !== crc32) return undefined;
  // A worker that froze here may find the next file at the key: with `found`, it is not kept.
  const kept = await storage.keep(key, as, { found, signal });
  if (!kept) return undefined;
  const { versionId } = kept;
  return {
    role,
    key,
    at: kept.key,
    ...(versionId !== undefined && { versionId }),
    bytes: kept.bytes,
    etag: kept.etag ?? null,
    ...(crc32 !== undefined && { crc32 }),
    ...(sha256 !== undefined && { sha256 }),
  };
}

/** The properties that differ. `version` has the size and the upload date, see `versionOf`. */
function changesFrom(media: Media, next: Pick<Media, 'key' | 'version'>): ('size' | 'upload date' | 'name')[] {
  const [[size, date], [nextSize, nextDate]] = [media.version.split(':'), next.version.split(':')] as const;
  return [
    ...(size !== nextSize ? (['size'] as const) : []),
    ...(date !== nextDate ? (['upload date'] as const) : []),
    ...(media.version === next.version ? (['name'] as const) : []),
  ];
}
