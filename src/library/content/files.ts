import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { join, sep } from 'node:path';
import type { Body } from './body.ts';
import { factsOf } from './metadata/metadata.ts';
import type { Facts } from './metadata/types.ts';

const CHUNK = 256 * 1024;

/** What is at a path below the root, as it was when it was looked at. */
export type Found = { path: string; size: number; mtimeMs: number; isFolder: boolean };

const AT_ONCE = 256;

/** Files and folders, without names that begin with a dot, and links. `leaveOut` is told what cannot be seen. */
export async function* walk(
  root: string,
  leaveOut: (path: string, why: unknown) => void,
  under = '',
): AsyncGenerator<Found> {
  const entries = await readdir(join(root, under), { withFileTypes: true, encoding: 'buffer' }).catch((error) => {
    if (under === '') throw error;
    if (error.code !== 'ENOENT') leaveOut(under, error);
    return [];
  });
  const files: string[] = [];
  const folders: string[] = [];
  for (const entry of entries) {
    const name = entry.name.toString();
    const path = under ? `${under}${sep}${name}` : name;
    if (name.startsWith('.')) continue;
    if (!isUtf8(entry.name)) leaveOut(path, 'the name is not UTF-8');
    else if (entry.isDirectory()) folders.push(path);
    else if (entry.isFile()) files.push(path);
  }
  for (let i = 0; i < files.length; i += AT_ONCE) {
    const found = await Promise.all(files.slice(i, i + AT_ONCE).map((path) => find(root, path)));
    yield* found.filter((one) => one !== undefined);
  }
  for (const path of folders) {
    yield { path: path + sep, size: 0, mtimeMs: 0, isFolder: true };
    yield* walk(root, leaveOut, path);
  }
}

async function find(root: string, path: string): Promise<Found | undefined> {
  const found = await lstat(join(root, path)).catch(() => undefined);
  return found?.isFile() ? { path, size: found.size, mtimeMs: found.mtimeMs, isFolder: false } : undefined;
}

export async function readFacts(root: string, { path, size }: Found, mimeType: string): Promise<Facts> {
  await using handle = await openFile(root, path);
  if (!/^(image|video|audio)\//.test(mimeType)) return {};
  const read = async (offset: number, length: number) => {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(length, size)), 0, undefined, offset);
    return buffer.subarray(0, bytesRead);
  };
  return await factsOf(read, size, mimeType);
}

/** The file as it was found. Once it is another one, reading fails, before the end of what was wanted. */
export function bodyOfFile(root: string, found: Found, type: string): Body {
  const stamp = stampOf(found);
  async function check(handle: FileHandle): Promise<void> {
    if (stampOf(await handle.stat()) !== stamp) throw new Error(`${found.path} has changed`);
  }
  return {
    size: found.size,
    etag: `"${hash(`${stamp}${found.path}`)}"`,
    type,
    async *chunks(start, end) {
      if (start >= end) return;
      await using handle = await openFile(root, found.path);
      await check(handle);
      for (let at = start; at < end; ) {
        const { buffer, bytesRead } = await handle.read(
          Buffer.allocUnsafe(Math.min(CHUNK, end - at)),
          0,
          undefined,
          at,
        );
        if (bytesRead === 0) return;
        at += bytesRead;
        // The last bytes are given only if all before them were of the same file.
        if (at >= end) await check(handle);
        yield buffer.subarray(0, bytesRead);
      }
    },
  };
}

/** Never through a link, should one have taken the place of the file. */
function openFile(root: string, path: string): Promise<FileHandle> {
  return open(join(root, path), constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0));
}

export function stampOf({ size, mtimeMs }: { size: number; mtimeMs: number }): string {
  return `${size} ${mtimeMs}`;
}

export function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 20);
}
