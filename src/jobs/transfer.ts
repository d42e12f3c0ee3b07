import { create as contentDisposition } from 'content-disposition';
import mime from 'mime';
import type { AssetDetail } from '../source/answers.ts';
import type { Throttle } from '../source/bandwidth.ts';
import { headBytes, isErrorPage, isMp4, isTextual } from '../source/contents.ts';
import { type Download, type Link, Missing, OtherVersion, type Pinned } from '../source/download.ts';
import { mediaKey, safeFilename } from '../storage/keys.ts';
import type { Stored } from '../storage/storage.ts';
import { note } from '../store/happenings.ts';
import type { Asset, Media, UploadUnderWay } from '../store/schema.ts';
import type { Turn } from '../store/turns.ts';
import type { MirrorDeps } from './deps.ts';
import { forget, inPartsFrom, moveInParts, NotInParts } from './in-parts.ts';
import { Interrupted } from './turns.ts';

/** Where the file of an asset comes from, decided by asking: the original, or for a video that has none the mp4. */
interface Source {
  variant: Media['variant'];
  link: Link;
  /** What must arrive; undefined when neither the service nor the server says. */
  bytes: number | undefined;
  contentType: string | undefined;
  /** The file in pieces of one version, or as one body. */
  from: { pinned: Pinned } | { download: Download };
}

interface Transfer {
  asset: Asset;
  turn: Turn;
  detail: AssetDetail;
  /** Asks for the asset again, for a link that expired on the way. */
  renew: () => Promise<AssetDetail>;
  /** The bandwidth of its connection. */
  throttle: Throttle;
  /** Called with the key when the file is there to be had, before anything of it can be seen there. */
  onStart: (key: string) => Promise<void>;
  signal: AbortSignal;
}

/**
 * Moves the media file into the bucket and returns what is there, compared by length and checksum with what was declared
 * and sent. A large one goes in parts, and goes on with those that an earlier turn has left.
 */
export async function transferMedia(deps: MirrorDeps, transfer: Transfer): Promise<Media> {
  const { storage, store } = deps;
  const { asset, turn, detail, signal } = transfer;
  const upload = await uploadToGoOnWith(deps, transfer);
  if (upload) return moveUpload(deps, transfer, upload, linkTo(transfer, upload.variant)!);

  const { variant, link, bytes, contentType, from } = await openSource(deps, transfer);
  const { key, name } = placeOf(deps.keyTemplate, asset.companyId, detail, variant);
  note(turn, 'began', { variant, bytes: bytes ?? null });
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
  // From here on the store may have parts of it, which are found by the key if this process dies.
  if ('pinned' in from || bytes === undefined || bytes > inPartsFrom) {
    if (!(await store.uploads.intend(turn, key))) throw new Interrupted('another worker has the asset');
  }
  let whole = 'download' in from ? from.download : undefined;
  if ('pinned' in from) {
    const { bytes, etag } = from.pinned;
    const begun = await storage.uploads.begin(key, { ...options, bytes });
    const upload = { ...begun, variant, version: versionOf(detail), etag };
    if (!(await store.assets.saveUpload(turn, upload))) {
      await storage.uploads.abort(begun);
      throw new Interrupted('another worker has the asset');
    }
    try {
      return await moveUpload(deps, transfer, upload, link);
    } catch (error) {
      // Once it may have been a chance: a server among several, or another version.
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
    body.on('error', () => {}).destroy();
  }
}

async function moveUpload(deps: MirrorDeps, transfer: Transfer, upload: UploadUnderWay, link: Link): Promise<Media> {
  const { turn, detail, signal } = transfer;
  const stored = await moveInParts(deps, {
    turn,
    upload,
    link,
    async onComplete() {
      if (!(await deps.store.assets.startTransfer(turn))) throw new Interrupted('another worker has the asset');
      await transfer.onStart(upload.key);
    },
    signal,
  });
  return mediaOf(stored, upload.variant, detail);
}

/** What an earlier turn has begun, if it is of this version and for this place; anything else that was begun is ended. */
async function uploadToGoOnWith(deps: MirrorDeps, transfer: Transfer): Promise<UploadUnderWay | undefined> {
  const { asset, turn, detail } = transfer;
  const { upload } = asset;
  if (!upload) return undefined;
  const { key } = placeOf(deps.keyTemplate, asset.companyId, detail, upload.variant);
  const goesOn = upload.version === versionOf(detail) && upload.key === key && linkTo(transfer, upload.variant);
  if (goesOn) return upload;
  await forget(deps, turn, upload);
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

/** What tells one version of a file from the next, as far as the API lets on. */
export function versionOf(detail: AssetDetail): string {
  return `${detail.size ?? '?'}:${detail.uploadDate ?? '?'}`;
}

/** The key of the media file, and its name for people, which need not be as short as a key's segment. */
export function placeOf(template: string, companyId: string, detail: AssetDetail, variant: Media['variant']) {
  const given = detail.download?.filename ?? detail.name;
  const extension = variant === 'mp4' ? 'mp4' : undefined;
  const filename = safeFilename(given, extension);
  const key = mediaKey(template, { companyId, projectId: detail.projectId, assetId: detail.id, filename });
  return { key, name: safeFilename(given, extension, 800) };
}

/** The link to the original or the rendition, and how to renew it; undefined: there is none. */
function linkTo({ turn, detail, renew, throttle }: Transfer, variant: Media['variant']): Link | undefined {
  const which = variant === 'mp4' ? 'mp4Url' : 'url';
  const url = detail.download?.[which];
  if (!url) return undefined;
  return {
    url,
    throttle,
    async renew() {
      const next = await renew();
      note(turn, 'renewed the link');
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
  const { detail, signal } = transfer;
  const size = detail.size ?? undefined;
  const original = linkTo(transfer, 'original');
  const mp4 = linkTo(transfer, 'mp4');
  if (original) {
    const variant = 'original';
    try {
      const pinned = size !== undefined && size > inPartsFrom ? await downloader.pin(original, signal) : undefined;
      if (pinned) {
        if (pinned.bytes !== size) throw new Error(wrongSize(size!, pinned.bytes));
        return { variant, link: original, bytes: size, contentType: pinned.contentType, from: { pinned } };
      }
      const download = await downloader.open(original, signal);
      const bytes = lengthOf(download, size, detail.mimeType);
      // Without a size to compare, a page of words in place of the file would pass for it.
      if (size !== undefined) {
        return { variant, link: original, bytes, contentType: download.contentType, from: { download } };
      }
      await refuseWords(download, detail);
      return await pinnedIfLarge({ variant, link: original, bytes, download });
    } catch (error) {
      if (!(error instanceof Missing && mp4)) throw error;
    }
  }
  if (!mp4) throw new Error('the service says it is there, and gives no link to it');
  const download = await downloader.open(mp4, signal);
  // `size` is the original's: of the rendition only the server knows the length.
  const bytes = lengthOf(download, undefined, 'video/mp4');
  await refuseWords(download, 'mp4');
  return pinnedIfLarge({ variant: 'mp4', link: mp4, bytes, download });

  /** How large it is was only seen when it was opened; the body that has begun is let go then. */
  async function pinnedIfLarge(opened: Omit<Source, 'from' | 'contentType'> & { download: Download }): Promise<Source> {
    const { download, ...source } = opened;
    const { bytes, link } = source;
    const { contentType } = download;
    if (bytes !== undefined && bytes > inPartsFrom) {
      const pinned = await downloader.pin(link, signal).catch((error) => {
        download.body.on('error', () => {}).destroy();
        throw error;
      });
      if (pinned?.bytes === bytes) {
        download.body.on('error', () => {}).destroy();
        return { ...source, contentType, from: { pinned } };
      }
    }
    return { ...source, contentType, from: { download } };
  }
}

const wrongSize = (said: number, found: number) =>
  `wrong size: the service says ${said} bytes, the download has ${found}`;

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

/** @throws when the file begins as a page does that tells why it cannot be had, whatever type it claims to be */
async function refuseWords(download: Download, of: AssetDetail | 'mp4'): Promise<void> {
  const textual = of !== 'mp4' && (isTextual(of.mimeType) || isTextual(mime.getType(of.download?.filename ?? '')));
  if (textual) return;
  const head = await download.peek(headBytes);
  if (isErrorPage(head)) refuse(download, 'the download is a page of words, not the file');
  // A server that does not know what it gives may give anything; one that knows it for a film is believed.
  if (of === 'mp4' && !isMp4(head) && !/^video\//i.test(download.contentType ?? '')) {
    refuse(download, 'the download is not an MP4');
  }
}

function refuse(download: Download, message: string): never {
  download.body.on('error', () => {}).destroy();
  throw new Error(message);
}
