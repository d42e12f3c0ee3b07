import { renderReason } from '../../floor/reasons.ts';
import { versionName } from '../../storage/keys.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { AssetContents } from '../../store/verifications/contents.ts';
import type { Expected } from '../expected-objects.ts';
import { whyNot } from '../why-not-mirrored.ts';

/** One asset: its objects in the bucket, and why they are not complete. Times are ISO 8601. */
export type InventoryLine = ReturnType<typeof lineOf>;

/** `objects`: those of `storedOf`; `keepVersions`, `goneRetention`: in ms. */
export function lineOf(
  asset: AssetContents & { isProtected: boolean },
  objects: Expected[],
  { versions, keepVersions, goneRetention }: { versions: AssetVersion[]; keepVersions: number; goneRetention: number },
) {
  const why = whyNot(asset);
  return {
    id: asset.id,
    /** Null: restored from the bucket, and no connection can read its company yet. */
    connectionId: asset.connectionId,
    companyId: asset.companyId,
    projectId: asset.projectId,
    name: asset.name,
    uploadDate: isoOf(asset.uploadDate),
    state: asset.state,
    /** Why the current file is not in the bucket; null: it is. */
    reason: why && renderReason(why),
    /** The code of that reason; null: it has none, such as an asset that waits for a free slot. */
    reasonCode: why?.reason?.code ?? null,
    transcript: asset.transcriptState,
    thumbnail: asset.thumbnailState,
    mirroredAt: asset.mirroredAt?.toISOString() ?? null,
    /** When the bytes of its media were last compared with their checksum. */
    verifiedAt: asset.media ? (asset.verifiedAt?.toISOString() ?? null) : null,
    /** When GONE_RETENTION removes the objects of the asset; null: never, or a hold protects them. */
    removedAt: asset.goneAt && !asset.isProtected ? isoOf(asset.goneAt.getTime() + goneRetention) : null,
    /** The media first. */
    objects: objects.map(({ key, bytes = null, crc32 = null, sha256 = null }) => ({ key, bytes, crc32, sha256 })),
    /** The superseded files that are kept, newest first. `versionId`: in a bucket with versions. */
    versions: versions.map(({ replacedAt, mirroredAt, files }) => ({
      version: versionName(replacedAt),
      mirroredAt: mirroredAt.toISOString(),
      replacedAt: replacedAt.toISOString(),
      /** When KEEP_VERSIONS removes the version; null: never. */
      expiresAt: isoOf(replacedAt.getTime() + keepVersions),
      objects: files.map(({ at: key, versionId, bytes, crc32 = null, sha256 = null }) => ({
        ...{ key, versionId, bytes, crc32, sha256 },
      })),
    })),
  };
}

/** The library may send any number as a date. Null: it is none, or infinite. */
function isoOf(epoch: number | null): string | null {
  const date = new Date(epoch ?? Number.NaN);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}
