import mime from 'mime';
import { KnownError, Rejected, RetryLater } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import type { LeasedAsset } from '../queue/leases.ts';
import { type Download, type Link, Missing, OtherVersion, type Pinned } from '../source/download.ts';
import { isTemporary } from '../source/http.ts';
import { headBytes, isErrorPage, isMp4, isTextual } from '../source/recognize-content.ts';
import { type AssetDetail, versionOf } from '../source/schemas.ts';
import { note } from '../store/assets/history.ts';
import type { Media } from '../store/database/schema.ts';
import { askLibrary } from './ask-library.ts';
import type { MirrorDeps } from './deps.ts';
import { storedVersionOf } from './media.ts';
import { stopsAsset } from './retry-or-fail.ts';
import { partsThreshold } from './transfer-in-parts.ts';

/** The source of an asset's file: the original, or the mp4 of a video without one. */
export interface Source {
  variant: Media['variant'];
  link: Link;
  /** The expected length; undefined when neither the library nor the server says. */
  bytes: number | undefined;
  contentType: string | undefined;
  /** In parts of one version, or as one body. */
  from: { pinned: Pinned } | { download: Download };
}

/**
 * The original. If its link is missing (404 or 410) and there is an mp4 rendition, that one (spec, section 4.7, rule 2); see also
 * `mustTakeRendition`.
 */
export async function openSource(deps: MirrorDeps, leased: LeasedAsset, detail: AssetDetail): Promise<Source> {
  const original = linkTo(deps, leased, detail, 'original');
  const mp4 = linkTo(deps, leased, detail, 'mp4');
  if (original && !mustTakeRendition(leased, detail)) {
    try {
      return await openOriginal(deps, leased, detail, original);
    } catch (error) {
      if (!(error instanceof Missing && mp4)) throw error;
    }
  }
  if (!mp4) throw new KnownError({ code: 'no_link' });
  await keepDamagedOriginal(deps, leased, detail);
  const download = await deps.downloader.open(mp4, leased.signal);
  // `size` is that of the original. Only the server knows the length of the rendition.
  const bytes = lengthOf(download, undefined, 'video/mp4');
  await refuseErrorPage(download);
  await requireVideo(download);
  return pinnedIfLarge(deps, leased, { variant: 'mp4', link: mp4, bytes }, download);
}

/**
 * A repair does not replace a damaged original by the rendition: perhaps only a few of its bytes are wrong.
 * @throws Rejected if the bucket has one
 */
async function keepDamagedOriginal({ storage }: MirrorDeps, { asset, signal }: LeasedAsset, detail: AssetDetail) {
  const { media, mirroredAt } = asset;
  if (media?.variant !== 'original' || !mirroredAt || storedVersionOf(asset) !== versionOf(detail)) return;
  if (await storage.head(media.key, { signal })) throw new Rejected({ code: 'damaged_original', key: media.key });
}

/** Whether the stored file is the rendition and the library has the original again. An error counts as no: the rendition stays. */
export async function isOriginalBack(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  { variant }: Pick<Media, 'variant'>,
): Promise<boolean> {
  const original = variant === 'mp4' ? linkTo(deps, leased, detail, 'original') : undefined;
  if (!original) return false;
  try {
    const { from } = await openOriginal(deps, leased, detail, original);
    if ('download' in from) from.download.body.destroy();
    return true;
  } catch (error) {
    if (stopsAsset(leased.signal, error)) throw error;
    // Parts of the original are stored already. They are not given up for an error that passes.
    const isOriginalBegun = leased.asset.upload?.variant === 'original';
    if (isOriginalBegun && (error instanceof RetryLater || isTemporary(error))) throw error;
    // The rendition does not wait, but the library may ask the connection to.
    if (error instanceof RetryLater) await deps.limiter.adaptTo(leased.asset.connectionId, error);
    return false;
  }
}

/** The original that was to replace a rendition has failed twice: the rendition is fetched again, so that the asset has a file. */
export const mustTakeRendition = ({ asset }: LeasedAsset, detail: AssetDetail) =>
  asset.media?.variant === 'mp4' &&
  asset.attempts >= 2 &&
  Boolean(detail.download?.mp4Url) &&
  storedVersionOf(asset) === versionOf(detail);

async function openOriginal(deps: MirrorDeps, leased: LeasedAsset, detail: AssetDetail, link: Link): Promise<Source> {
  const { downloader } = deps;
  const { asset, signal } = leased;
  const size = detail.size ?? undefined;
  const variant = 'original';
  const pinned = size !== undefined && size > partsThreshold(asset) ? await downloader.pin(link, signal) : undefined;
  if (pinned) {
    if (pinned.bytes !== size) throw new KnownError(wrongLength(size!, pinned.bytes));
    const { contentType } = pinned;
    if (!mayBePage(contentType, detail)) return { variant, link, bytes: size, contentType, from: { pinned } };
  }
  const download = await downloader.open(link, signal);
  const { contentType } = download;
  const bytes = lengthOf(download, size, detail.mimeType);
  const isSuspect = size !== 0 && mayBePage(contentType, detail);
  if (size !== undefined && !isSuspect) return { variant, link, bytes, contentType, from: { download } };
  // Without a size to compare, an error page would pass for the file.
  await refuseErrorPage(download, { mayBeText: !isSuspect && isText(detail) });
  return pinnedIfLarge(deps, leased, { variant, link, bytes }, download);
}

/** Switches to parts if the length, known only from the opened body, turns out to be large. */
async function pinnedIfLarge(
  { downloader }: MirrorDeps,
  { asset, signal }: LeasedAsset,
  source: Omit<Source, 'from' | 'contentType'>,
  download: Download,
): Promise<Source> {
  const { bytes, link } = source;
  const { contentType } = download;
  if (bytes !== undefined && bytes > partsThreshold(asset)) {
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

/** The link to the original or the rendition. Undefined if the library gives none. */
export function linkTo(
  deps: MirrorDeps,
  leased: LeasedAsset,
  detail: AssetDetail,
  variant: Media['variant'],
): Link | undefined {
  const which = variant === 'mp4' ? 'mp4Url' : 'url';
  const url = detail.download?.[which];
  if (!url) return undefined;
  return {
    url,
    throttle: deps.throttles.of(leased.asset.connectionId),
    async renew() {
      const next = await askLibrary(deps, leased);
      note(leased.lease, 'link_renewed');
      if (versionOf(next) !== versionOf(detail)) {
        throw new OtherVersion('the file was replaced at the library during the transfer');
      }
      const renewed = next.download?.[which];
      if (!renewed) throw new KnownError({ code: 'no_link' });
      return renewed;
    },
  };
}

const wrongLength = (expected: number, got: number): Reason => ({
  code: 'wrong_length',
  of: 'download',
  expected,
  got,
});
const wrongContent = (got: string): Reason => ({ code: 'wrong_content', of: 'file', got });

/** Whether the answer may be a web page instead of the file, as for an expired link. Some servers declare every file as text/html. */
function mayBePage(contentType: string | undefined, { mimeType, download }: AssetDetail): boolean {
  const expected = [mimeType, mime.getType(download?.filename ?? '')];
  const isPage = expected.some((type) => /^(text\/(html|plain)|application\/xhtml\+xml)/i.test(type ?? ''));
  return /^(text\/html|application\/xhtml\+xml)/i.test(contentType ?? '') && !isPage;
}

const isText = ({ mimeType, download }: AssetDetail): boolean =>
  isTextual(mimeType) || isTextual(mime.getType(download?.filename ?? ''));

/** The length of the body. @throws if the answer cannot be the file, or if a truncated body would go unnoticed */
export function lengthOf(
  download: Download,
  size: number | undefined,
  mimeType: string | null | undefined,
): number | undefined {
  if (size !== undefined) {
    if (download.bytes !== undefined && download.bytes !== size) {
      refuse(download, wrongLength(size, download.bytes));
    }
    return size;
  }
  if (download.unbounded) refuse(download, { code: 'no_length', of: 'file' });
  if (download.bytes === 0) refuse(download, { code: 'empty' });
  const type = /^(text\/[\w.+-]+|application\/([\w.-]+\+)?(json|xml))/i.exec(download.contentType ?? '')?.[1];
  if (type && !mimeType?.toLowerCase().startsWith(type.toLowerCase())) refuse(download, wrongContent(type));
  return download.bytes;
}

/** @throws when the download is empty or, unless it may be text, begins like an error page, whatever its declared type */
async function refuseErrorPage(download: Download, { mayBeText = false } = {}): Promise<void> {
  if (download.bytes === undefined && (await download.peek(1)).length === 0) refuse(download, { code: 'empty' });
  if (!mayBeText && isErrorPage(await download.peek(headBytes))) refuse(download, wrongContent('an error page'));
}

/** @throws when the download neither begins like an MP4 nor is declared as a video */
async function requireVideo(download: Download): Promise<void> {
  const isVideo = /^video\//i.test(download.contentType ?? '') || isMp4(await download.peek(headBytes));
  if (!isVideo) refuse(download, { code: 'wrong_content', of: 'mp4', got: null });
}

function refuse(download: Download, reason: Reason): never {
  download.body.destroy();
  throw new KnownError(reason);
}
