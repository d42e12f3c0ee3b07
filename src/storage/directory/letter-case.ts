import { randomUUID } from 'node:crypto';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { exists } from '../../floor/files.ts';

/** Whether the file system of a directory ignores case. Writes and removes a file there. */
export async function ignoresCase(directory: string): Promise<boolean> {
  const probe = join(directory, `Probe-${randomUUID()}`);
  try {
    await writeFile(probe, '');
    return await exists(probe.replace('Probe-', 'pROBE-'));
  } finally {
    await rm(probe, { force: true }).catch(() => {});
  }
}

const folded = (name: string) => name.normalize('NFC').toUpperCase();

/** Finds keys that differ only in case, on a file system that ignores case. */
export function caseCheck(root: string) {
  /** Paths whose spelling on the disk is known to be exactly this. */
  const exact = new Set<string>();

  return {
    /** The path that another key has taken, which differs from this key's in case only. Undefined if there is none. */
    async other(key: string): Promise<string | undefined> {
      let at = root;
      for (const segment of key.split('/')) {
        const path = join(at, segment);
        if (!exact.has(path)) {
          if (!(await exists(path))) return undefined;
          const names = await readdir(at);
          if (!names.some((name) => name.normalize('NFC') === segment)) {
            return join(at, names.find((name) => folded(name) === folded(segment)) ?? segment);
          }
          if (exact.size >= 10_000) exact.clear();
          exact.add(path);
        }
        at = path;
      }
      // A file may be removed and written again in another case.
      exact.delete(at);
      return undefined;
    },
  };
}
