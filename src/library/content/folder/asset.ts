import { createHash } from 'node:crypto';
import { basename, sep } from 'node:path';
import mime from 'mime';
import type { File } from '../../database/tables.ts';
import { ASSET_TYPES, type Asset, isVideo, newAsset } from '../../model.ts';
import { placeholder } from '../thumbnail.ts';
import { bodyOfFile } from './files.ts';

const LARGEST_THUMBNAIL = 256 * 1024;

/** The asset of a file. */
export function assetOf(root: string, file: File): Asset {
  const name = basename(file.path);
  const folders = file.path.split(sep).slice(0, -1);
  const mimeType = mimeTypeOf(file.path);
  const body = bodyOfFile(root, file, mimeType);
  const isPicture = /^image\/(jpeg|png|gif|webp)$/.test(mimeType);
  const { companyId, uploadDate, size, duration, width, height } = file;
  return newAsset({
    id: assetIdOf(file.path),
    companyId,
    project: folders[0] === undefined ? null : projectOf(folders[0]),
    name,
    mimeType,
    assetType: assetTypeOf(mimeType, folders),
    tags: folders.slice(1),
    uploadDate,
    size,
    duration,
    width,
    height,
    original: () => body,
    // There is no transcoder. An MP4 is its own rendition.
    mp4: mimeType === 'video/mp4' ? () => body : null,
    thumbnail: isPicture && size <= LARGEST_THUMBNAIL ? () => body : placeholder(name),
  });
}

export function assetIdOf(path: string): string {
  return `ast_${hash(path)}`;
}

export function projectOf(folder: string): { id: string; name: string } {
  return { id: `prj_${hash(folder)}`, name: folder };
}

export function companyIdOf(root: string): string {
  return `cmp_${hash(root)}`;
}

export function mimeTypeOf(path: string): string {
  return mime.getType(path) ?? 'application/octet-stream';
}

/** The type that a folder in the path is named after, or else the type of the file. */
function assetTypeOf(mimeType: string, folders: string[]): string {
  const named = ASSET_TYPES.find((type) => folders.some((folder) => folder.toLowerCase() === type));
  if (named) return named;
  if (isVideo(mimeType)) return 'videos';
  if (mimeType.startsWith('audio/')) return 'audio';
  if (/^image\/(jpeg|heic|heif|tiff|webp|x-)/.test(mimeType)) return 'photography';
  return mimeType.startsWith('image/') ? 'graphics' : 'documents';
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 20);
}
