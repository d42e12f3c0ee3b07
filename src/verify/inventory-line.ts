import type { AssetState, AssetVersion } from '../store/database/schema.ts';
import type { AssetContents } from '../store/verifications/contents.ts';
import { versionName } from '../version-name.ts';
import type { Expected } from './expected-objects.ts';
import { whyNot } from './why-not-mirrored.ts';

/** One asset: its objects in the bucket, and why they are not complete. */
export interface InventoryLine {
  id: string;
  /** Null: restored from the bucket, and no connection can read its company yet. */
  connectionId: string | null;
  companyId: string;
  projectId: string | null;
  name: string | null;
  /** ISO 8601. */
  uploadDate: string | null;
  state: AssetState;
  /** Why its current file is not in the bucket; null: it is. */
  reason: string | null;
  transcript: string;
  thumbnail: string;
  mirroredAt: string | null;
  /** When the bytes of its media were last compared with their checksum. */
  verifiedAt: string | null;
  /** When GONE_RETENTION removes its objects; null: not. */
  removedAt: string | null;
  /** The media first. */
  objects: { key: string; bytes: number | null; crc32: string | null; sha256: string | null }[];
  /** Its superseded files that are kept, newest first. `versionId`: in a bucket with versions. */
  versions: {
    version: string;
    mirroredAt: string;
    replacedAt: string;
    /** When KEEP_VERSIONS removes it; null: never. */
    expiresAt: string | null;
    objects: {
      key: string;
      versionId?: string | undefined;
      bytes: number;
      crc32: string | null;
      sha256: string | null;
    }[];
  }[];
}

/** `objects`: those of `storedOf`; `keepVersions`, `goneRetention`: in ms. */
export function lineOf(
  asset: AssetContents,
  objects: Expected[],
  { versions, keepVersions, goneRetention }: { versions: AssetVersion[]; keepVersions: number; goneRetention: number },
): InventoryLine {
  return {
    id: asset.id,
    connectionId: asset.connectionId,
    companyId: asset.companyId,
    projectId: asset.projectId,
    name: asset.name,
    uploadDate: isoOf(asset.uploadDate),
    state: asset.state,
    reason: whyNot(asset),
    transcript: asset.transcriptState,
    thumbnail: asset.thumbnailState,
    mirroredAt: asset.mirroredAt?.toISOString() ?? null,
    verifiedAt: asset.media ? (asset.verifiedAt?.toISOString() ?? null) : null,
    removedAt: asset.goneAt ? isoOf(asset.goneAt.getTime() + goneRetention) : null,
    objects: objects.map(({ key, bytes = null, crc32 = null, sha256 = null }) => ({ key, bytes, crc32, sha256 })),
    versions: versions.map(({ replacedAt, mirroredAt, files }) => ({
      version: versionName(replacedAt),
      mirroredAt: mirroredAt.toISOString(),
      replacedAt: replacedAt.toISOString(),
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
