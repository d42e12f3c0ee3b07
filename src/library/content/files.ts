import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, opendir } from 'node:fs/promises';
import { join, sep } from 'node:path';
import type { Body } from './body.ts';
import { type Facts, factsOf } from './facts/facts.ts';

const CHUNK = 256 * 1024;

/** What is at a path below the root, as it was when it was looked at. */
export type Found = { path: string; size: number; mtimeMs: number; isFolder: boolean };

/** Files and folders, without names that begin with a dot, and links. `leaveOut` is told what cannot be seen. */
export async function* walk(
  root: string,
  leaveOut: (path: string, why: unknown) => void,
  under = '',
): AsyncGenerator<Found> {
  const entries = await opendir(join(root, under), { encoding: 'buffer' as 'utf8' }).catch((error) => {
    if (under === '') throw error;
    if (error.code !== 'ENOENT') leaveOut(under, error);
    return [];
  });
  for await (const entry of entries) {
    const name = entry.name as string | Buffer;
    const text = name.toString();
    const path = under ? `${under}${sep}${text}` : text;
    if (text.startsWith('.')) continue;
    if (typeof name !== 'string' && !isUtf8(name)) leaveOut(path, 'the name is not UTF-8');
    else if (entry.isDirectory()) {
      yield { path: path + sep, size: 0, mtimeMs: 0, isFolder: true };
      yield* walk(root, leaveOut, path);
    } else if (entry.isFile()) {
      const found = await lstat(join(root, path)).catch(() => undefined);
      if (found?.isFile()) yield { path, size: found.size, mtimeMs: found.mtimeMs, isFolder: false };
    }
  }
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
