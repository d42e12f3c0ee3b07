import { rmdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { CopyConfig } from './config/config.ts';
import type { StorageTarget } from './config/parsers.ts';
import type { Log } from './log.ts';
import { draftFolder } from './storage/directory/root.ts';
import { bucketIdKey } from './storage/keys.ts';
import { identified } from './storage/mirror-id.ts';
import { openStorage } from './storage/open.ts';
import { openVerbDatabase } from './verb-database.ts';
import { type Restoring, restore } from './verify/restore.ts';
import { type Selection, WrongSelection } from './verify/select-copies.ts';

export type { Restoring };
export { WrongSelection };

export interface RestoreRequest extends Selection {
  to: StorageTarget;
  /** Replaces files at the target that have other content. */
  overwrite: boolean;
}

/** Called during a restore. */
export interface RestoreReport {
  start: (from: string, to: string) => void;
  /** Called with one sentence for each asset that could not be restored. */
  problem: (line: string) => void;
  progress: (progress: Readonly<Restoring>) => void;
}

/**
 * Copies files of the mirror to `to`, in a process of its own. Only reads the database and the bucket.
 * @throws WrongSelection
 */
export async function restoreFrom(
  config: CopyConfig,
  { to, overwrite, ...selection }: RestoreRequest,
  { log, stop, report }: { log: Log; stop: AbortSignal; report: RestoreReport },
): Promise<Restoring> {
  if (overlaps(config.storage.target, to))
    throw new WrongSelection('The target is in the bucket of the mirror itself.');
  await using open = new AsyncDisposableStack();
  const store = await openVerbDatabase(config, log, open);
  stop.throwIfAborted();
  const objects = await openStorage(config.storage, { connections: 32, memory: store.bucket, log });
  const storage = identified(objects, store.bucket.id);
  open.defer(() => storage.close());
  await storage.check();
  const target = await openStorage({ target: to, s3: config.storage.s3 }, { connections: 32, log });
  // Perhaps this mirror under another name.
  if (await target.head(bucketIdKey))
    throw new WrongSelection(`The target is that of a mirror: ${target.name} has ${bucketIdKey}.`);
  open.defer(async () => {
    await target.close();
    if (to.kind === 'directory') await rmdir(join(to.path, draftFolder)).catch(() => {});
  });
  await target.check();
  report.start(storage.name, target.name);
  return await restore(
    { store, storage, target, keepVersions: config.keepVersions },
    { selection, overwrite, onProblem: report.problem, onProgress: report.progress, signal: stop },
  );
}

/** Whether one of them contains the other. */
function overlaps(one: StorageTarget, other: StorageTarget): boolean {
  if (one.kind === 'directory' && other.kind === 'directory') {
    const isIn = (inner: string, outer: string) => !/^\.\.(\/|$)/.test(relative(outer, inner));
    return isIn(one.path, other.path) || isIn(other.path, one.path);
  }
  if (one.kind !== 's3' || other.kind !== 's3' || one.bucket !== other.bucket) return false;
  const isIn = (inner: string, outer: string) => `${inner}/`.startsWith(outer && `${outer}/`);
  return isIn(one.prefix, other.prefix) || isIn(other.prefix, one.prefix);
}
