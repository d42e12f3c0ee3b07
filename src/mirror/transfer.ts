import { create as contentDisposition } from 'content-disposition';
import mime from 'mime';
import { mustHold } from '../queue/leases.ts';
import type { Throttle } from '../source/bandwidth.ts';
import { type Download, type Link, Missing, OtherVersion, type Pinned } from '../source/download.ts';
import { headBytes, isErrorPage, isMp4, isTextual } from '../source/recognize-content.ts';
import { type AssetDetail, textOf } from '../source/schemas.ts';
import { mediaKey, safeFilename } from '../storage/keys.ts';
import type { Stored } from '../storage/storage.ts';
import { note } from '../store/assets/history.ts';
import type { AssetLease } from '../store/assets/leases.ts';
import type { Asset, Media, UploadUnderWay } from '../store/database/schema.ts';
import type { MirrorDeps } from './deps.ts';
import { forget, inPartsFrom, moveInParts, NotInParts } from './transfer-in-parts.ts';

/** Where the file of an asset comes from: the original, or the mp4 of a video without one. */
interface Source {
  variant: Media['variant'];
  link: Link;
  /** The expected length; undefined when neither the library nor the server says. */
  bytes: number | undefined;
  contentType: string | undefined;
  /** In parts of one version, or as one body. */
  from: { pinned: Pinned } | { download: Download };
}

interface Transfer {
  asset: Asset;
  lease: AssetLease;
  detail: AssetDetail;
  /** Requests the asset again, for fresh links. */
  renew: () => Promise<AssetDetail>;
  /** The bandwidth limit of the connection. */
  throttle: Throttle;
  /** Called once the source has answered, before the object at `key` changes. */
  onStart: (key: string) => Promise<void>;
  signal: AbortSignal;
}

/**
 * Transfers the media file into the bucket, verified by length and checksum. A large file goes in parts, and resumes with
 * those that an earlier lease stored.
 */
export async function transferMedia(deps: MirrorDeps, transfer: Transfer): Promise<Media> {
  const { storage, store } = deps;
  const { asset, lease, detail, signal } = transfer;
  const upload = await uploadToResume(deps, transfer);
  if (upload) return moveUpload(deps, transfer, upload, linkTo(transfer, upload.variant)!);

  const { variant, link, bytes, contentType, from } = await openSource(deps, transfer);
  const { key, name } = placeOf(deps.keyTemplate, asset, detail, variant);
  note(lease, 'began', { variant, bytes: bytes ?? null });
  const options = {
    contentType: (variant === 'mp4' ? 'video/mp4' : detail.mimeType) || contentType || undefined,
    contentDisposition: contentDisposition(name),
    metadata: {
      'asset-id': idInHeader(detail.id),
      'upload-date': String(detail.uploadDate ?? ''),
      variant,
    },
    signal,
  };
  // If this process dies from here on, the janitor finds the parts in the store by this key.
  if ('pinned' in from || bytes === undefined || bytes > inPartsFrom(asset)) {
    mustHold(await store.uploads.intend(lease, key));
  }
  let whole = 'download' in from ? from.download : undefined;
  if ('pinned' in from) {
    const { bytes, etag } = from.pinned;
    const begun = await storage.uploads.begin(key, { ...options, bytes });
    const upload = { ...begun, variant, version: versionOf(detail), etag };
    const isOurs = await store.assets.saveUpload(lease, upload);
    if (!isOurs) await storage.uploads.abort(begun);
    mustHold(isOurs);
    try {
      return await moveUpload(deps, transfer, upload, link);
    } catch (error) {
      // The first time it may be chance, such as one server of several; after that the file goes as one body.
      if (!(error instanceof NotInParts) || asset.attempts === 0) throw error;
    }
    whole = await deps.downloader.open(link, signal);
    lengthOf(whole, bytes, undefined);
  }
  const { body } = whole!;
  try {
    await transfer.onStart(key);
    return mediaOf(await storage.put(key, body, { ...options, bytes }), variant, detail);
  } finally {
    body.destroy();
  }
}

async function moveUpload(deps: MirrorDeps, transfer: Transfer, upload: UploadUnderWay, link: Link): Promise<Media> {
  const { lease, detail, signal } = transfer;
  const stored = await moveInParts(deps, {
    lease,
    upload,
    link,
    async onComplete() {
      mustHold(await deps.store.assets.startTransfer(lease));
      await transfer.onStart(upload.key);
    },
    signal,
  });
  return mediaOf(stored, upload.variant, detail);
}

/** The upload that an earlier lease began, if it is of this version and key; any other upload is ended. */
async function uploadToResume(deps: MirrorDeps, transfer: Transfer): Promise<UploadUnderWay | undefined> {
  const { asset, lease, detail } = transfer;
  const { upload } = asset;
  if (!upload) return undefined;
  const { key } = placeOf(deps.keyTemplate, asset, detail, upload.variant);
  const canResume = upload.version === versionOf(detail) && upload.key === key && linkTo(transfer, upload.variant);
  if (canResume) return upload;
  await forget(deps, lease, upload);
  return undefined;
}

function mediaOf(stored: Stored, variant: Media['variant'], detail: AssetDetail): Media {
  const { key, bytes, checksums, etag = null } = stored;
  return { key, bytes, variant, checksums, etag, version: versionOf(detail) };
}

/** Metadata of an object is 2 KB in all (S3 user guide, "Object metadata"); the record beside it has the id in full. */
function idInHeader(id: string): string {
  const encoded = encodeURIComponent(id);
  return encoded.length <= 1000 ? encoded : `${encoded.slice(0, 1000)}...`;
}

/** Identifies a version of the file, as far as the API tells. */
export function versionOf(detail: AssetDetail): string {
  return `${detail.size ?? '?'}:${detail.uploadDate ?? '?'}`;
}

/**
 * The key of the media file, and its name for people, which need not be as short as a key's segment. A file that replaces
 * one whose key differs only in case takes that key, for some file systems ignore case.
 */
export function placeOf(
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
  return { key: isSame ? media!.key : key, name: safeFilename(given, extension, 800) };
}

/** The link to the original or the rendition, and how to renew it; undefined: there is none. */
function linkTo({ lease, detail, renew, throttle }: Transfer, variant: Media['variant']): Link | undefined {
  const which = variant === 'mp4' ? 'mp4Url' : 'url';
  const url = detail.download?.[which];
  if (!url) return undefined;
  return {
    url,
    throttle,
    async renew() {
      const next = await renew();
      note(lease, 'renewed the link');
      if (versionOf(next) !== versionOf(detail)) {
        throw new OtherVersion('the file was replaced at the service during the transfer');
      }
      const renewed = next.download?.[which];
      if (!renewed) throw new Error('the service has no new link for the file');
      return renewed;
    },
  };
}

/** The original; if that link says 404 and there is an mp4 rendition, that one (spec, section 4.7, rule 2). */
async function openSource({ downloader }: MirrorDeps, transfer: Transfer): Promise<Source> {
  const { asset, detail, signal } = transfer;
  const size = detail.size ?? undefined;
  const original = linkTo(transfer, 'original');
  const mp4 = linkTo(transfer, 'mp4');
  if (original) {
    const variant = 'original';
    try {
      const pinned =
        size !== undefined && size > inPartsFrom(asset) ? await downloader.pin(original, signal) : undefined;
      if (pinned) {
        if (pinned.bytes !== size) throw new Error(wrongSize(size!, pinned.bytes));
        if (isPageInstead(pinned.contentType, detail)) throw new Error(pageInstead);
        return { variant, link: original, bytes: size, contentType: pinned.contentType, from: { pinned } };
      }
      const download = await downloader.open(original, signal);
      const bytes = lengthOf(download, size, detail.mimeType);
      if (isPageInstead(download.contentType, detail)) refuse(download, pageInstead);
      // Without a size to compare, an error page would pass for the file.
      if (size !== undefined) {
        return { variant, link: original, bytes, contentType: download.contentType, from: { download } };
      }
      await refuseErrorPage(download, detail);
      return await pinnedIfLarge({ variant, link: original, bytes, download });
    } catch (error) {
      if (!(error instanceof Missing && mp4)) throw error;
    }
  }
  if (!mp4) throw new Error('the service says it is there, and gives no link to it');
  const download = await downloader.open(mp4, signal);
  // `size` is the original's: of the rendition only the server knows the length.
  const bytes = lengthOf(download, undefined, 'video/mp4');
  await refuseErrorPage(download, 'mp4');
  return pinnedIfLarge({ variant: 'mp4', link: mp4, bytes, download });

  /** Switches to parts if the length, known only from the opened body, turns out to be large. */
  async function pinnedIfLarge(opened: Omit<Source, 'from' | 'contentType'> & { download: Download }): Promise<Source> {
    const { download, ...source } = opened;
    const { bytes, link } = source;
    const { contentType } = download;
    if (bytes !== undefined && bytes > inPartsFrom(asset)) {
      const pinned = await downloader.pin(link, signal).catch((error) => {
        download.body.destroy();
        throw error;
      });
      if (pinned?.bytes === bytes) {
        download.body.destroy();
        return { ...source, contentType, from: { pinned } };
      }
    }
    return { ...source, contentType, from: { download } };
  }
}

const wrongSize = (said: number, found: number) =>
  `wrong size: the service says ${said} bytes, the download has ${found}`;

const pageInstead = 'the download is text/html, not the file';

/** Whether the server sends a web page in place of the file, as some do for an expired link. */
function isPageInstead(contentType: string | undefined, detail: AssetDetail): boolean {
  return /^(text\/html|application\/xhtml\+xml)/i.test(contentType ?? '') && !isText(detail);
}

const isText = ({ mimeType, download }: AssetDetail): boolean =>
  isTextual(mimeType) || isTextual(mime.getType(download?.filename ?? ''));

/** The length that must arrive. @throws when what the server sends cannot be the file, or could be cut unseen */
function lengthOf(
  download: Download,
  size: number | undefined,
  mimeType: string | null | undefined,
): number | undefined {
  if (size !== undefined) {
    if (download.bytes !== undefined && download.bytes !== size) {
      refuse(download, wrongSize(size, download.bytes));
    }
    return size;
  }
  if (download.unbounded) refuse(download, 'nobody says how long the file is, so one that was cut could not be told');
  if (download.bytes === 0) refuse(download, 'the download is empty');
  const type = /^(text\/[\w.+-]+|application\/([\w.-]+\+)?(json|xml))/i.exec(download.contentType ?? '')?.[1];
  if (type && !mimeType?.toLowerCase().startsWith(type.toLowerCase()))
    refuse(download, `the download is ${type}, not the file`);
  return download.bytes;
}

/** @throws when the download begins like an error page, whatever its declared type */
async function refuseErrorPage(download: Download, of: AssetDetail | 'mp4'): Promise<void> {
  if (of !== 'mp4' && isText(of)) return;
  const head = await download.peek(headBytes);
  if (isErrorPage(head)) refuse(download, 'the download is a page of words, not the file');
  // Without MP4 bytes at the start, only a server that declares a video is believed.
  if (of === 'mp4' && !isMp4(head) && !/^video\//i.test(download.contentType ?? '')) {
    refuse(download, 'the download is not an MP4');
  }
}

function refuse(download: Download, message: string): never {
  download.body.destroy();
  throw new Error(message);
}
