import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { StoredObject } from '../storage.ts';
import { classify, codeOf } from './errors.ts';
import { draftFolder, type Root } from './root.ts';

/** The objects below `folder` (a key, or empty for all) whose keys begin with `prefix`, in the order of their keys. */
export async function* walk(
  root: Root,
  folder: string,
  prefix: string,
  signal?: AbortSignal,
): AsyncGenerator<StoredObject> {
  const top = folder === '';
  const entries = await readdir(top ? root.path : join(root.path, folder), { withFileTypes: true }).catch(
    async (error) => {
      if (top || codeOf(error) !== 'ENOENT') throw classify(error, root.path);
      await root.checkMounted();
      return [];
    },
  );
  const named = entries
    .filter((entry) => !(top && entry.name === draftFolder))
    .map((entry) => ({ entry, key: (top ? '' : `${folder}/`) + entry.name + (entry.isDirectory() ? '/' : '') }))
    .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
  if (top) await root.onDisk(root.sameDisk());
  for (const { entry, key } of named) {
    signal?.throwIfAborted();
    if (entry.isDirectory()) {
      if (key.startsWith(prefix) || prefix.startsWith(key)) yield* walk(root, key.slice(0, -1), prefix, signal);
    } else if (entry.isFile() && key.startsWith(prefix)) {
      const found = await root.describe(key);
      if (found) yield found;
    }
  }
}
