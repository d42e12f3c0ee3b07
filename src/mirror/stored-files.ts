import { sidecarKeys } from '../storage/keys.ts';
import type { Asset, Media, VersionFile } from '../store/database/schema.ts';

/** An object of the stored file, as the row describes it. After a rebuild, length and checksums of sidecars may be unknown. */
export type StoredFile = Omit<VersionFile, 'at' | 'versionId' | 'bytes'> & { bytes: number | undefined };

/** The objects of the stored file of an asset: the media first, the record last. */
export function storedFiles(
  { sidecarFiles, transcriptKeys, thumbnail }: Pick<Asset, 'sidecarFiles' | 'transcriptKeys' | 'thumbnail'>,
  media: Media,
): StoredFile[] {
  const { key, bytes, etag, checksums } = media;
  const sidecar = (role: VersionFile['role'], at: string): StoredFile => {
    const { bytes, etag = null, crc32, sha256 } = sidecarFiles[at] ?? {};
    return { role, key: at, bytes, etag, crc32, sha256 };
  };
  const roleOf = (at: string) => {
    if (at === sidecarKeys.captions(key)) return 'captions';
    return at === sidecarKeys.text(key) ? 'text' : 'transcript';
  };
  return [
    { role: 'media', key, bytes, etag, crc32: checksums.crc32, sha256: checksums.sha256 },
    ...(transcriptKeys ?? []).map((at) => sidecar(roleOf(at), at)),
    ...(thumbnail ? [sidecar('thumbnail', thumbnail.key)] : []),
    sidecar('record', sidecarKeys.record(key)),
  ];
}
