import { create as contentDisposition } from 'content-disposition';
import mime from 'mime';
import type { AssetDetail } from '../source/answers.ts';
import { headBytes, isErrorPage, isMp4, isTextual } from '../source/contents.ts';
import { type Download, type Downloader, type Link, Missing } from '../source/download.ts';
import { mediaKey, safeFilename } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type { Media } from '../store/schema.ts';

/** Where the file of an asset comes from, decided by asking: the original, or for a video that has none the mp4. */
interface Source {
  variant: Media['variant'];
  download: Download;
  /** What must arrive; undefined when neither the service nor the server says. */
  bytes: number | undefined;
}

/**
 * Moves the media file into the bucket and returns what is there, compared by length and checksum with what was declared
 * and sent. `renew` asks for the asset again, for a link that expired on the way.
 */
export async function transferMedia(options: {
  detail: AssetDetail;
  companyId: string;
  keyTemplate: string;
  storage: Storage;
  downloader: Downloader;
  renew: () => Promise<AssetDetail>;
  /** Called with the key when the file is there to be had, before the first byte of it goes out. */
  onStart: (key: string) => Promise<void>;
  signal: AbortSignal;
}): Promise<Media> {
  const { detail, storage, signal } = options;
  const { variant, download, bytes } = await openSource(options);
  try {
    const { key, name } = placeOf(options.keyTemplate, options.companyId, detail, variant);
    await options.onStart(key);
    const stored = await storage.put(key, download.body, {
      bytes,
      contentType: (variant === 'mp4' ? 'video/mp4' : detail.mimeType) || download.contentType || undefined,
      contentDisposition: contentDisposition(name),
      metadata: {
        'asset-id': encodeURIComponent(detail.id),
        'upload-date': String(detail.uploadDate ?? ''),
        variant,
      },
      signal,
    });
    return {
      key,
      bytes: stored.bytes,
      variant,
      checksums: stored.checksums,
      etag: stored.etag ?? null,
      version: versionOf(detail),
    };
  } finally {
    download.body.on('error', () => {}).destroy();
  }
}

/** What tells one version of a file from the next, as far as the API lets on. */
export function versionOf(detail: AssetDetail): string {
  return `${detail.size ?? '?'}:${detail.uploadDate ?? '?'}`;
}

/** The key of the media file, and its name for people, which need not be as short as a key's segment. */
export function placeOf(template: string, companyId: string, detail: AssetDetail, variant: Media['variant']) {
  const given = detail.download?.filename || detail.name;
  const extension = variant === 'mp4' ? 'mp4' : undefined;
  const filename = safeFilename(given, extension);
  const key = mediaKey(template, { companyId, projectId: detail.projectId, assetId: detail.id, filename });
  return { key, name: safeFilename(given, extension, 800) };
}

/** The original; if that link says 404 and there is an mp4 rendition, that one (spec, section 4.7, rule 2). */
async function openSource(options: {
  detail: AssetDetail;
  downloader: Downloader;
  renew: () => Promise<AssetDetail>;
  signal: AbortSignal;
}): Promise<Source> {
  const { detail, downloader, signal } = options;
  const linkTo = (which: 'url' | 'mp4Url', url: string): Link => ({
    url,
    async renew() {
      const next = await options.renew();
      if (versionOf(next) !== versionOf(detail))
        throw new Error('the file was replaced at the service during the transfer');
      const renewed = next.download?.[which];
      if (!renewed) throw new Error('the service has no new link for the file');
      return renewed;
    },
  });
  const original = detail.download?.url;
  const mp4 = detail.download?.mp4Url;
  if (original) {
    try {
      const download = await downloader.open(linkTo('url', original), signal);
      const bytes = lengthOf(download, detail.size ?? undefined, detail.mimeType);
      // Without a size to compare, a page of words in place of the file would pass for it.
      if (detail.size === null || detail.size === undefined) await refuseWords(download, detail);
      return { variant: 'original', download, bytes };
    } catch (error) {
      if (!(error instanceof Missing && mp4)) throw error;
    }
  }
  if (!mp4) throw new Error('the service says it is there, and gives no link to it');
  const download = await downloader.open(linkTo('mp4Url', mp4), signal);
  // `size` is the original's: of the rendition only the server knows the length.
  const bytes = lengthOf(download, undefined, 'video/mp4');
  await refuseWords(download, 'mp4');
  return { variant: 'mp4', download, bytes };
}

/** The length that must arrive. @throws when what the server sends cannot be the file, or could be cut unseen */
function lengthOf(
  download: Download,
  size: number | undefined,
  mimeType: string | null | undefined,
): number | undefined {
  if (size !== undefined) {
    if (download.bytes !== undefined && download.bytes !== size) {
      refuse(download, `wrong size: the service says ${size} bytes, the download has ${download.bytes}`);
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
