import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { link, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { measure } from '../meter.ts';
import type { KeepOptions, KeptObject } from '../storage.ts';
import type { Drafts } from './drafts.ts';
import { codeOf } from './errors.ts';
import type { Root } from './root.ts';
import { moveIntoPlace, write } from './write.ts';

/** The errors of file systems that cannot make a hard link: none at all, too many to one file, or to another disk. */
const noLink = ['EPERM', 'EXDEV', 'EMLINK', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP'];

type What = { key: string; as: string } & KeepOptions;

/** Keeps a file by a second link to it: files are replaced, never changed. Without links it is copied, and the copy is read. */
export async function keep(root: Root, drafts: Drafts, what: What): Promise<KeptObject | undefined> {
  const { key, as, signal } = what;
  signal?.throwIfAborted();
  const now = await root.describe(key);
  if (!now) return undefined;
  const { bytes } = now;
  const linked = await linkTo(root, drafts, what);
  if (!linked) await copy(root, drafts, what, bytes);
  const kept = await root.describe(as);
  if (kept?.bytes !== bytes) throw new Error(`keep ${key}: ${as} has ${kept?.bytes ?? 'no'} bytes of ${bytes}`);
  return { key: as, bytes, etag: undefined };
}

function requireSame({ key, found }: What, now: { bytes: number; modified: Date | undefined } | undefined): void {
  if (!found || (now?.bytes === found.bytes && now.modified?.getTime() === found.modified?.getTime())) return;
  throw new Error(`keep ${key}: another object has replaced it`);
}

/** False if the file system has no link for this file. */
async function linkTo(root: Root, drafts: Drafts, what: What): Promise<boolean> {
  const { key, as } = what;
  const [file, target] = [root.fileOf(key), root.fileOf(as)];
  const draft = join(root.drafts, randomUUID());
  const claim = { key: as, draft, bytes: 0, meter: { passed: 0, bodyError: undefined } };
  return (
    drafts
      .withDraft(claim, async () => {
        await root.refuseOther(as);
        const isLinked = await link(file, draft).then(
          () => true,
          (error) => {
            if (noLink.includes(codeOf(error))) return false;
            throw error;
          },
        );
        if (!isLinked) return false;
        const { size: bytes, mtime: modified } = await stat(draft);
        requireSame(what, { bytes, modified });
        await moveIntoPlace(root, draft, target, as);
        return true;
      })
      // A rename onto another link of the same file leaves both (rename(2)).
      .finally(() => rm(draft, { force: true }).catch(() => {}))
  );
}

async function copy(root: Root, drafts: Drafts, what: What, bytes: number): Promise<void> {
  const { key, as, signal } = what;
  const fence = async () => requireSame(what, await root.describe(key));
  const { checksums } = await write(root, drafts, as, createReadStream(root.fileOf(key)), { bytes, signal, fence });
  const { crc32 } = await measure(createReadStream(root.fileOf(as)), signal);
  if (crc32 !== checksums.crc32)
    throw new Error(`keep ${key}: its copy has CRC-32 ${crc32} instead of ${checksums.crc32}`);
}
