import type { Readable } from 'node:stream';
import { create as contentDisposition } from 'content-disposition';
import mime from 'mime';
import { z } from 'zod';
import type { ReadOptions } from '../storage/storage.ts';
import type { Asset } from '../store/database/schema.ts';
import { existingAsset } from './assets.ts';
import type { OperationsDeps } from './deps.ts';
import { Refused } from './refused.ts';

export const fileQuery = z.strictObject({
  download: z
    .union([z.boolean(), z.stringbool()], 'expected true or false')
    .optional()
    .describe('Whether browsers save the file instead of showing it.'),
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
      /** Undefined: it was removed meanwhile. */
      open: (range: ReadOptions['range']) => Promise<Readable | undefined>;
    }
);

/** How long a link to the store is valid. */
const linkMs = 5 * 60_000;

/** What browsers may show. Anything else, such as HTML or SVG, could run scripts, and is only saved. */
const passive = /^(image\/(avif|gif|jpeg|png|webp)|(audio|video)\/[\w.+-]+|application\/(json|pdf)|text\/(plain|vtt))$/;

export function assetFileOperations({ store, storage }: Pick<OperationsDeps, 'store' | 'storage'>) {
  const { link } = storage;
  return {
    /**
     * A file of an asset in the bucket. Captions and records have no link, because scripts and players may not read files of
     * other sites. @throws Refused 404 without the file, 409 if the bucket has archived it
     */
    async assetFile(id: string, kind: FileKind, options: FileQuery): Promise<AssetFile> {
      const { download = false } = fileQuery.parse(options);
      const asset = await existingAsset(store, id);
      const key = keyOf(asset, kind);
      if (key === undefined) throw notThere(id, kind);
      const headers = headersFor(key, typeOf(asset, kind, key), download);
      // Thumbnails are many and never archived: the store itself says if one is missing.
      if (link && kind === 'thumbnail') return { ...headers, link: await link(key, { ...headers, ms: linkMs }) };
      const object = await storage.head(key);
      if (!object) throw notThere(id, kind);
      if (object.archived) throw new Refused(409, 'file_archived', archivedText);
      if (link && kind === 'media') return { ...headers, link: await link(key, { ...headers, ms: linkMs }) };
      const { bytes, etag, modified } = object;
      const stamp = `${bytes.toString(16)}-${(modified ?? new Date(0)).getTime().toString(16)}`;
      return { ...headers, bytes, etag: etag ?? stamp, open: (range) => storage.get(key, { range }) };
    },

    /** The origin of links to the store; undefined: there are none. */
    async linkOrigin(): Promise<string | undefined> {
      const options = { contentType: 'text/plain', contentDisposition: 'inline', ms: linkMs };
      return link && new URL(await link('any', options)).origin;
    },
  };
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
  const isShown = passive.test(type) && !download;
  const shownType = type.startsWith('text/') ? `${type}; charset=utf-8` : type;
  const name = key.slice(key.lastIndexOf('/') + 1);
  return {
    contentType: isShown ? shownType : 'application/octet-stream',
    contentDisposition: contentDisposition(name, { type: isShown ? 'inline' : 'attachment' }),
  };
}

const archivedText = 'The bucket has archived this file. Restore it in the store first; until then it cannot be read.';

const notThere = (id: string, kind: FileKind) =>
  new Refused(
    404,
    'file_not_in_bucket',
    `The bucket has no ${kind} of asset ${id}. \`asset-mirror explain ${id}\` says more.`,
  );
