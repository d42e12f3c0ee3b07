import { constants } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { diagnosisOf, reasonOf } from '../../floor/errors.ts';
import { exists } from '../../floor/files.ts';
import type { Finding } from '../../floor/finding.ts';
import { formatBytes } from '../../floor/units.ts';
import { mirrorIdFinding, note, ok, wrong } from '../findings.ts';
import { bucketIdKey } from '../keys.ts';
import { openDirectory } from './directory.ts';
import { ignoresCase } from './letter-case.ts';
import { draftFolder } from './root.ts';

/** Checks what a directory and its file system can do. A missing directory is not made. `knownId`: see `mirrorIdFinding`. */
export async function* probeDirectory({ path }: { path: string }, knownId?: string | null): AsyncGenerator<Finding> {
  if (!(await exists(path))) {
    yield knownId ? mirrorIdFinding(undefined, knownId) : await missingDirectory(path);
    return;
  }
  const storage = await openDirectory({ path });
  try {
    try {
      await storage.check();
      yield ok('objects', 'are written and synced to the disk');
    } catch (error) {
      const { found, remedy } = diagnosisOf(error) ?? {
        found: reasonOf(error).replace(`${path}: `, ''),
        remedy: `let this account write to ${path}, or correct STORAGE_URL`,
      };
      yield wrong('objects', found, remedy);
      return;
    }
    const id = await storage.get(bucketIdKey);
    yield mirrorIdFinding(id && ((await text(id)).trim() || undefined), knownId);
    yield await freeSpace(path);
    yield await letterCase(path);
  } finally {
    await storage.close();
  }
}

async function missingDirectory(path: string): Promise<Finding> {
  const parent = await nearestParent(path);
  return (await exists(parent, constants.W_OK))
    ? note('directory', `${path} does not exist yet`, 'the first start makes it')
    : wrong('directory', `${path} does not exist and cannot be made`, `let this account write to ${parent}`);
}

async function freeSpace(path: string): Promise<Finding> {
  const { bavail, blocks, bsize, files, ffree } = await statfs(path);
  const free = `${formatBytes(bavail * bsize)} free of ${formatBytes(blocks * bsize)}`;
  if (bavail * bsize < 2 ** 30) return note('space', free, 'free some, or move the mirror to a larger disk');
  if (files > 0 && ffree < 10_000)
    return note(
      'space',
      `space for only ${ffree} more files`,
      'remove other files, or move the mirror to another file system',
    );
  return ok('space', free);
}

async function letterCase(path: string): Promise<Finding> {
  if (!(await ignoresCase(join(path, draftFolder)))) return ok('names', 'upper and lower case differ');
  const remedy = 'use another file system: of two assets whose ids differ only in case, the second one fails';
  return note('names', 'the file system ignores upper and lower case', remedy);
}

async function nearestParent(path: string): Promise<string> {
  for (let at = dirname(path); ; at = dirname(at)) if (at === dirname(at) || (await exists(at))) return at;
}
