import { type ApiAsset, type AssetDetail, textOf, versionOf } from '../source/schemas.ts';
import { mediaKey, safeFilename } from '../storage/keys.ts';
import type { Stored } from '../storage/storage.ts';
import type { Asset, Media } from '../store/database/schema.ts';

/** The version of the stored file. `media.version` of a damaged file is cleared, but `detail` still describes it. */
export const storedVersionOf = ({ media, detail }: Pick<Asset, 'media' | 'detail'>) =>
  media?.version || (detail && versionOf(detail as ApiAsset));

/**
 * Maximum bytes of the name in `Content-Disposition`. Encoded, a byte takes up to 3.5 bytes, and S3 allows 2 KB for all system headers
 * of an object (user guide, "Object metadata").
 */
const longestName = 450;

/**
 * The key of the media file, and its full name, which may be longer than a segment of a key. A file that replaces one whose
 * key differs only in case gets that key, because some file systems ignore case.
 */
export function objectNameOf(
  template: string,
  { companyId, media }: Pick<Asset, 'companyId' | 'media'>,
  detail: AssetDetail,
  variant: Media['variant'],
) {
  const given = detail.download?.filename ?? textOf(detail.name);
  const extension = variant === 'mp4' ? 'mp4' : undefined;
  const filename = safeFilename(given, extension);
  const key = mediaKey(template, { companyId, projectId: detail.projectId, assetId: detail.id, filename });
  const isSame = media?.key.toLowerCase() === key.toLowerCase();
  return { key: isSame ? media!.key : key, name: safeFilename(given, extension, longestName) };
}

export function mediaOf(stored: Stored, variant: Media['variant'], detail: AssetDetail): Media {
  const { key, bytes, checksums, etag = null } = stored;
  return { key, bytes, variant, checksums, etag, version: versionOf(detail) };
}
