import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { join, sep } from 'node:path';
import type { Body } from '../body.ts';
import { readMetadata } from '../metadata/metadata.ts';
import type { Metadata } from '../metadata/types.ts';

const CHUNK_BYTES = 256 * 1024;
const BATCH = 256;

/** A file or folder below the root. The path of a folder ends with a separator. */
export type Found = { path: string; size: number; mtimeMs: number };

/** Lists files and folders, without hidden ones and links. Reports those that cannot be served to `onSkipped`. */
export async function* walk(
  root: string,
  onSkipped: (path: string, reason: unknown) => void,
  under = '',
): AsyncGenerator<Found> {
  const entries = await readdir(join(root, under), { withFileTypes: true, encoding: 'buffer' }).catch((error) => {
    if (under === '') throw error;
    if (error.code !== 'ENOENT') onSkipped(under, error);
    return [];
  });
  const files: string[] = [];
  const folders: string[] = [];
  for (const entry of entries) {
    const name = entry.name.toString();
    const path = under ? `${under}${sep}${name}` : name;
    if (name.startsWith('.')) continue;
    if (!isUtf8(entry.name)) onSkipped(path, 'the name is not UTF-8');
    else if (entry.isDirectory()) folders.push(path);
    else if (entry.isFile()) files.push(path);
  }
  for (let i = 0; i < files.length; i += BATCH) {
    const found = await Promise.all(files.slice(i, i + BATCH).map((path) => find(root, path)));
    yield* found.filter((file) => file !== undefined);
  }
  for (const path of folders) {
    yield { path: path + sep, size: 0, mtimeMs: 0 };
    yield* walk(root, onSkipped, path);
  }
}

async function find(root: string, path: string): Promise<Found | undefined> {
  const found = await lstat(join(root, path)).catch(() => undefined);
  return found?.isFile() ? { path, size: found.size, mtimeMs: found.mtimeMs } : undefined;
}

/** Throws if the file cannot be read. */
export async function metadataOf(root: string, { path, size }: Found, mimeType: string): Promise<Metadata> {
  await using handle = await openFile(root, path);
  if (!/^(image|video|audio)\//.test(mimeType)) return {};
  const read = async (offset: number, length: number) => {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(length, size)), 0, undefined, offset);
    return buffer.subarray(0, bytesRead);
  };
  return await readMetadata(read, size, mimeType);
}

/** The content of a file as it was found. If the file changes, reading fails before the last byte. */
export function bodyOfFile(root: string, found: Found, type: string): Body {
  const stamp = stampOf(found);
  const etag = createHash('sha256').update(`${stamp}${found.path}`).digest('hex').slice(0, 20);
  return {
    size: found.size,
    etag: `"${etag}"`,
    type,
    async *chunks(start, end) {
      if (start >= end) return;
      await using handle = await openFile(root, found.path);
      await checkUnchanged(handle, found.path, stamp);
      for (let at = start; at < end; ) {
        const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, end - at));
        const { bytesRead } = await handle.read(chunk, 0, undefined, at);
        if (bytesRead === 0) return;
        at += bytesRead;
        if (at >= end) await checkUnchanged(handle, found.path, stamp);
        yield chunk.subarray(0, bytesRead);
      }
    },
  };
}

async function checkUnchanged(handle: FileHandle, path: string, stamp: string): Promise<void> {
  if (stampOf(await handle.stat()) !== stamp) throw new Error(`${path} has changed.`);
}

/** Does not follow a link that has replaced the file. */
function openFile(root: string, path: string): Promise<FileHandle> {
  return open(join(root, path), constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
}

/** Differs if a file was changed. */
export function stampOf({ size, mtimeMs }: { size: number; mtimeMs: number }): string {
  return `${size} ${mtimeMs}`;
}
