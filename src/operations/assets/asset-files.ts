import type { Readable } from 'node:stream';
import { create as contentDisposition } from 'content-disposition';
import mime from 'mime';
import { z } from 'zod';
import { Archived, RetryLater, reasonOf, StorageUnavailable } from '../../floor/errors.ts';
import { answerWithin, NoAnswer, within } from '../../floor/within.ts';
import type { GetOptions } from '../../storage/storage.ts';
import type { Asset } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';
import { text } from '../fields.ts';
import { flag } from '../pagination.ts';
import { Refused } from '../refused.ts';
import { existingAsset } from './assets.ts';

export const fileQuery = z.strictObject({
  download: flag.describe('Whether browsers save the file instead of showing it.'),
  version: text
    .optional()
    .describe(
      'Has no effect on the answer. A new value makes browsers fetch the file again instead of using their cache.',
    ),
});
export type FileQuery = z.input<typeof fileQuery>;
export type FileKind = 'media' | 'thumbnail' | 'captions' | 'record';

/** A file for a browser: either a link to the store, or the bytes. */
export type AssetFile = {
  contentType: string;
  contentDisposition: string;
} & (
  | { link: string }
  | {
      link?: undefined;
      bytes: number;
      etag: string;
      /** @throws Refused if it was removed or replaced meanwhile, or the bucket does not answer */
      open: (range: GetOptions['range']) => Promise<Readable>;
    }
);

/** How long a link to the store is valid. */
const linkMs = 5 * 60_000;
/** Time limit for the answer of the bucket. */
const answerMs = 10_000;

/** Types that browsers may show. Others, such as HTML, SVG or a playlist, could run scripts or fetch more, and are only saved. */
const shown = new Set([
  ...['avif', 'gif', 'jpeg', 'png', 'webp'].map((type) => `image/${type}`),
  ...['aac', 'flac', 'mp4', 'mpeg', 'ogg', 'wav', 'webm', 'x-m4a', 'x-wav'].map((type) => `audio/${type}`),
  ...['mp4', 'mpeg', 'ogg', 'quicktime', 'webm', 'x-m4v', 'x-matroska'].map((type) => `video/${type}`),
  ...['application/json', 'application/pdf', 'text/plain', 'text/vtt'],
]);

export function assetFileOperations({ store, storage }: Pick<OperationsDeps, 'store' | 'storage'>) {
  const { links } = storage;
  let origin: string | undefined;
  return {
    /**
     * A file of an asset in the bucket. Captions and records have no link: scripts and captions of other sites are not allowed in a
     * page. `direct`: no link at all. `signal`: aborted when the client has closed the connection.
     * @throws Refused 404 without the file, 409 if the bucket has archived it, 503 if the bucket does not answer
     */
    async assetFile(
      id: string,
      kind: FileKind,
      { direct = false, signal, ...query }: FileQuery & { direct?: boolean; signal: AbortSignal },
    ): Promise<AssetFile> {
      const { download = false } = fileQuery.parse(query);
      const asset = await existingAsset(store, id);
      const key = keyOf(asset, kind);
      if (key === undefined) throw notThere(id, kind);
      const headers = headersFor(key, typeOf(asset, kind, key), download);
      const isLinked = links && !direct && (kind === 'media' || kind === 'thumbnail');
      const link = () => links!.to(key, { ...headers, ms: linkMs });
      // Thumbnails are many and never archived: the store itself says if one is missing.
      if (isLinked && kind === 'thumbnail') return { ...headers, link: await inTime(link, signal) };
      const object = await inTime((stop) => storage.head(key, { signal: stop }), signal);
      if (!object) throw notThere(id, kind);
      if (object.archived) throw archived();
      if (isLinked) return { ...headers, link: await inTime(link, signal) };
      const { bytes, etag, modified } = object;
      return {
        ...headers,
        bytes,
        etag: etag ?? `${bytes.toString(16)}-${(modified ?? new Date(0)).getTime().toString(16)}`,
        async open(range) {
          const body = await inTime((stop) => storage.get(key, { range, found: object, signal: stop }), signal);
          if (body) return body;
          throw new Refused(409, 'file_changed', 'The file was just removed or replaced. Try again.');
        },
      };
    },

    /** The origin of links to the store; undefined: there are none, or it is not known now. */
    async linkOrigin(): Promise<string | undefined> {
      origin ??=
        links &&
        (await within(
          1000,
          links.origin().catch(() => undefined),
        ));
      return origin;
    },
  };
}

/** Waits for the answer of the bucket, at most `answerMs`. Reading a body may take longer, until `signal`. @throws Refused */
async function inTime<T>(ask: (stop: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await answerWithin(answerMs, (late) => ask(AbortSignal.any([signal, late])));
  } catch (error) {
    if (error instanceof Archived) throw archived();
    const isAway = [NoAnswer, StorageUnavailable, RetryLater].some((type) => error instanceof type);
    if (!signal.aborted && !isAway) throw error;
    const why = `The bucket cannot be read now: ${reasonOf(error)}.`;
    throw new Refused(503, 'bucket_unavailable', `${why} Try again later.`);
  }
}

function keyOf(asset: Asset, kind: FileKind): string | undefined {
  if (kind === 'thumbnail') return asset.thumbnail?.key;
  if (kind === 'captions') return asset.transcriptKeys?.find((key) => key.endsWith('.vtt'));
  if (kind === 'record') return asset.recordKey ?? undefined;
  return asset.media?.key;
}

/** The media type, as the library or else the key names it. */
function typeOf(asset: Asset, kind: FileKind, key: string): string {
  if (kind === 'captions') return 'text/vtt';
  if (kind === 'record') return 'application/json';
  const { mimeType } = asset.detail ?? asset.listed;
  if (kind === 'media' && asset.media?.variant === 'mp4') return 'video/mp4';
  const declared = kind === 'media' && typeof mimeType === 'string' ? mimeType : mime.getType(key);
  return (declared ?? '').split(';')[0]!.trim().toLowerCase();
}

function headersFor(key: string, type: string, download: boolean) {
  const isShown = shown.has(type) && !download;
  const shownType = type.startsWith('text/') ? `${type}; charset=utf-8` : type;
  const name = key.slice(key.lastIndexOf('/') + 1);
  return {
    contentType: isShown ? shownType : 'application/octet-stream',
    contentDisposition: contentDisposition(name, { type: isShown ? 'inline' : 'attachment' }),
  };
}

const archived = () =>
  new Refused(
    409,
    'file_archived',
    'The bucket has archived this file. Restore it in the store first; until then it cannot be read.',
  );

const notThere = (id: string, kind: FileKind) =>
  new Refused(
    404,
    'file_not_in_bucket',
    `The bucket has no ${kind} of asset ${id}. \`asset-mirror explain ${id}\` says more.`,
  );
