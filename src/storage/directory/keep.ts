import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { link, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { measure } from '../meter.ts';
import type { KeptObject } from '../storage.ts';
import type { Drafts } from './drafts.ts';
import { codeOf } from './errors.ts';
import type { Root } from './root.ts';
import { moveIntoPlace, write } from './write.ts';

/** What file systems answer that have no hard links, or no more for this file, or none to another disk. */
const noLink = ['EPERM', 'EXDEV', 'EMLINK', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'];

/** Keeps a file by a second link to it: files are replaced, never changed. Without links it is copied, and the copy is read. */
export async function keep(
  root: Root,
  drafts: Drafts,
  { key, as, signal }: { key: string; as: string; signal: AbortSignal | undefined },
): Promise<KeptObject | undefined> {
  signal?.throwIfAborted();
  const found = await root.describe(key);
  if (!found) return undefined;
  const { bytes } = found;
  const linked = await linkTo(root, drafts, key, as);
  if (!linked) await copy(root, drafts, { key, as, bytes, signal });
  const kept = await root.describe(as);
  if (kept?.bytes !== bytes) throw new Error(`keep ${key}: ${as} has ${kept?.bytes ?? 'no'} bytes of ${bytes}`);
  return { key: as, bytes, etag: undefined };
}

/** False if the file system has no link for this file. */
async function linkTo(root: Root, drafts: Drafts, key: string, as: string): Promise<boolean> {
  const [file, target] = [root.fileOf(key), root.fileOf(as)];
  const draft = join(root.drafts, randomUUID());
  const claim = { key: as, draft, bytes: 0, meter: { passed: 0, bodyError: undefined } };
  return (
    drafts
      .write(claim, async () => {
        await root.refuseOther(as);
        const isLinked = await link(file, draft).then(
          () => true,
          (error) => {
            if (noLink.includes(codeOf(error))) return false;
            throw error;
          },
        );
        if (isLinked) await moveIntoPlace(root, draft, target, as);
        return isLinked;
      })
      // A rename onto another link of the same file leaves both (rename(2)).
      .finally(() => rm(draft, { force: true }).catch(() => {}))
  );
}

async function copy(
  root: Root,
  drafts: Drafts,
  { key, as, bytes, signal }: { key: string; as: string; bytes: number; signal: AbortSignal | undefined },
): Promise<void> {
  const { checksums } = await write(root, drafts, as, createReadStream(root.fileOf(key)), { bytes, signal });
  const { crc32 } = await measure(createReadStream(root.fileOf(as)), signal);
  if (crc32 !== checksums.crc32)
    throw new Error(`keep ${key}: its copy has CRC-32 ${crc32} instead of ${checksums.crc32}`);
}
