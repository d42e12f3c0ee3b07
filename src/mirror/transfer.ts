import { create as contentDisposition } from 'content-disposition';
import { type LeasedAsset, requireLease } from '../queue/leases.ts';
import { type Download, type Link, type Pinned, RangeRefused } from '../source/download.ts';
import { type AssetDetail, versionOf } from '../source/schemas.ts';
import type { PutOptions, Stored } from '../storage/storage.ts';
import { note } from '../store/assets/history.ts';
import type { Media, UploadUnderWay } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { mediaOf, objectNameOf } from './media.ts';
import { lengthOf, linkTo, mustTakeRendition, openSource, type Source } from './open-source.ts';
import { prepareReplacement } from './supersede.ts';
import { forgetUpload, partsThreshold, transferInParts } from './transfer-in-parts.ts';

/** The destination and the identity of the file. */
interface Target {
  key: string;
  version: string;
  variant: Media['variant'];
  bytes: number | undefined;
  options: PutOptions;
}

/**
 * Transfers the media file into the bucket, verified by length and checksum. A large file goes in parts, and resumes with
 * those that an earlier lease stored.
 */
export async function transfer(deps: MirrorDeps, leased: LeasedAsset, detail: AssetDetail): Promise<Media> {
  const unfinished = await uploadToResume(deps, leased, detail);
  if (unfinished) {
    const { upload, link } = unfinished;
    return mediaOf(await transferInParts(deps, leased, upload, link), upload.variant, detail);
  }
  const source = await openSource(deps, leased, detail);
  const { variant, link, bytes, from } = source;
  try {
    const target = targetOf(deps, leased, detail, source);
    note(leased.lease, 'began', { variant, bytes: bytes ?? null });
    // If this process dies now, the sweep finds the parts in the store by this key.
    if ('pinned' in from || bytes === undefined || bytes > partsThreshold(leased.asset)) {
      requireLease(await deps.store.uploads.announce(leased.lease, target.key));
    }
    const stored =
      'pinned' in from
        ? await transferPinned(deps, leased, target, link, from.pinned)
        : await transferWhole(deps, leased, target, from.download);
    return mediaOf(stored, variant, detail);
  } finally {
    if ('download' in from) from.download.body.destroy();
  }
}

/** The upload that an earlier lease began, if it is of this version and key. Any other upload is ended. */
async function uploadToResume(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
): Promise<{ upload: UploadUnderWay; link: Link } | undefined> {
  const { upload } = leased.asset;
  if (!upload) return undefined;
  const { key } = objectNameOf(deps.keyTemplate, leased.asset, detail, upload.variant);
  const link = linkTo(deps, leased, detail, upload.variant);
  const isWanted = upload.variant === 'mp4' || !mustTakeRendition(leased, detail);
  if (upload.version === versionOf(detail) && upload.key === key && link && isWanted) return { upload, link };
  await forgetUpload(deps, leased, upload);
  return undefined;
}

function targetOf(deps: MirrorDeps, { asset, signal }: LeasedAsset, detail: AssetDetail, source: Source): Target {
  const { variant, bytes, contentType } = source;
  const { key, name } = objectNameOf(deps.keyTemplate, asset, detail, variant);
  const options = {
    contentType: (variant === 'mp4' ? 'video/mp4' : detail.mimeType) || contentType || undefined,
    contentDisposition: contentDisposition(name),
    metadata: {
      'asset-id': idInHeader(detail.id),
      'upload-date': String(detail.uploadDate ?? ''),
      variant,
    },
    media: true as const,
    signal,
  };
  return { key, version: versionOf(detail), variant, bytes, options };
}

/** Metadata of an object is 2 KB in all (S3 user guide, "Object metadata"); the record has the full id. */
function idInHeader(id: string): string {
  const encoded = encodeURIComponent(id);
  return encoded.length <= 1000 ? encoded : `${encoded.slice(0, 1000)}...`;
}

async function transferPinned(
  deps: MirrorDeps,
  leased: LeasedAsset,
  target: Target,
  link: Link,
  { bytes, etag }: Pinned,
): Promise<Stored> {
  const { asset, lease, signal } = leased;
  const { key, version, variant, options } = target;
  const begun = await deps.storage.uploads.begin(key, { ...options, bytes });
  const upload: UploadUnderWay = { ...begun, variant, version, etag };
  const isOurs = await deps.store.assets.saveUpload(lease, upload);
  if (!isOurs) await deps.storage.uploads.abort(begun);
  requireLease(isOurs);
  try {
    return await transferInParts(deps, leased, upload, link);
  } catch (error) {
    // One of several servers may be the cause, so the second attempt tries parts again. If that fails, the file goes as one body.
    if (!(error instanceof RangeRefused) || asset.attempts === 0) throw error;
  }
  const download = await deps.downloader.open(link, signal);
  try {
    lengthOf(download, bytes, undefined);
    return await transferWhole(deps, leased, target, download);
  } finally {
    download.body.destroy();
  }
}

async function transferWhole(
  deps: MirrorDeps,
  leased: LeasedAsset,
  target: Target,
  { body }: Download,
): Promise<Stored> {
  const { key, bytes, options } = target;
  await prepareReplacement(deps, leased, target);
  return deps.storage.put(key, body, { ...options, bytes });
}
