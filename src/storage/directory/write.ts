import { randomUUID } from 'node:crypto';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { exists } from '../../floor/files.ts';
import { metered } from '../meter.ts';
import type { PutOptions, Stored } from '../storage.ts';
import type { Drafts } from './drafts.ts';
import { classifyOfKey, codeOf } from './errors.ts';
import type { Root } from './root.ts';

/** Writes a body to a draft, syncs it, and moves it into place. */
export async function write(
  root: Root,
  drafts: Drafts,
  key: string,
  body: Readable | Buffer | string,
  put: PutOptions,
): Promise<Stored> {
  const { bytes, fence, signal } = put;
  const source = body instanceof Readable ? body : Readable.from([Buffer.from(body)], { objectMode: false });
  const { promise: ready, resolve: start } = Promise.withResolvers<undefined>();
  const meter = metered(source, { expected: bytes, fence, hashed: root.hashes, signal, ready });
  const claim = { key, draft: join(root.drafts, randomUUID()), bytes: bytes ?? 0, meter, signal };
  async function work(): Promise<Stored> {
    const target = root.fileOf(key);
    await root.refuseOther(key);
    await drafts.ensureSpace(claim);
    const file = await open(claim.draft, 'wx');
    try {
      start(undefined);
      for await (const chunk of meter) await file.writeFile(chunk);
      await file.sync();
      const { size } = await file.stat();
      if (size !== meter.passed) throw new Error(`store ${key}: the file has ${size} bytes of ${meter.passed}`);
    } finally {
      await file.close();
    }
    // Again: to sync a large file may take longer than the margin of a lease.
    await fence?.();
    signal?.throwIfAborted();
    await moveIntoPlace(root, claim.draft, target, key);
    return { key, bytes: meter.passed, etag: undefined, checksums: meter.checksums() };
  }
  const undo = () => rm(claim.draft, { force: true }).catch(() => {});
  return drafts.withDraft(claim, work, undo).finally(() => source.destroy());
}

/** Renames a draft to its final path. When this returns, the rename and every directory of the path are on the disk. */
export async function moveIntoPlace(root: Root, draft: string, target: string, key: string): Promise<void> {
  try {
    const firstMade = await mkdir(dirname(target), { recursive: true });
    await root.refuseOther(key);
    await rename(draft, target);
    await root.syncPath(key, firstMade);
  } catch (error) {
    if (codeOf(error) === 'ENOENT' && !(await exists(draft)) && (await exists(root.drafts))) {
      throw new Error(`store ${key}: its draft was removed before it was complete`, { cause: error });
    }
    throw classifyOfKey(error, key);
  }
}
