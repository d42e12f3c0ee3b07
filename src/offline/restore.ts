import { rmdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { CopyConfig } from '../config/config.ts';
import type { StorageTarget } from '../config/parsers.ts';
import type { Log } from '../floor/log.ts';
import { draftFolder } from '../storage/directory/root.ts';
import { bucketIdKey } from '../storage/keys.ts';
import { withMirrorIdCheck } from '../storage/mirror-id.ts';
import { openStorage } from '../storage/open.ts';
import type { Storage } from '../storage/storage.ts';
import type { CopyProgress } from '../verify/copy/copy-each.ts';
import { restore } from '../verify/copy/restore.ts';
import { type Selection, WrongSelection } from '../verify/copy/select-copies.ts';
import { openDatabase } from './open-database.ts';

export interface RestoreRequest extends Selection {
  to: StorageTarget;
  /** Replaces files at the target that have other content. */
  overwrite: boolean;
}

/** Called during a restore or an export. */
export interface CopyReport {
  start: (from: string, to: string) => void;
  /** Called with one sentence for each asset that could not be copied. */
  problem: (line: string) => void;
  progress: (progress: Readonly<CopyProgress>) => void;
}

/**
 * Copies files of the mirror to `to`, in a process of its own. Removes and replaces nothing in the bucket.
 * @throws WrongSelection
 */
export async function restoreFrom(
  config: CopyConfig,
  { to, overwrite, ...selection }: RestoreRequest,
  { log, stop, report }: { log: Log; stop: AbortSignal; report: CopyReport },
): Promise<CopyProgress> {
  await using open = new AsyncDisposableStack();
  requireOther(config, to);
  const { store, storage } = await openMirror(config, { log, stop, open });
  const target = await openTarget(config, to, { log, open });
  report.start(storage.name, target.name);
  return await restore(
    { store, storage, target, keepVersions: config.keepVersions },
    { selection, overwrite, onProblem: report.problem, onProgress: report.progress, signal: stop },
  );
}

interface Opening {
  log: Log;
  /** Closes at the end what was opened. */
  open: AsyncDisposableStack;
}

/** Database and bucket of the mirror. */
export async function openMirror(config: CopyConfig, { log, stop, open }: Opening & { stop: AbortSignal }) {
  const store = await openDatabase(config, log, open);
  stop.throwIfAborted();
  const objects = await openStorage(config.storage, { memory: store.checksumSupport, log });
  const storage = withMirrorIdCheck(objects, store.bucket.id);
  open.defer(() => storage.close());
  await storage.check();
  return { store, storage };
}

/** The place to copy to. @throws WrongSelection if it belongs to a mirror */
export async function openTarget(config: CopyConfig, to: StorageTarget, { log, open }: Opening): Promise<Storage> {
  const target = await openStorage({ target: to, s3: config.storage.s3 }, { log });
  open.defer(async () => {
    await target.close();
    if (to.kind === 'directory') await rmdir(join(to.path, draftFolder)).catch(() => {});
  });
  // It may be the bucket of this mirror under another name.
  if (await target.head(bucketIdKey))
    throw new WrongSelection(
      `The target belongs to a mirror: ${target.name} has ${bucketIdKey}. Name another directory or bucket.`,
    );
  await target.check();
  return target;
}

/** @throws WrongSelection if the target is in the bucket of the mirror, or contains it */
export function requireOther(config: CopyConfig, to: StorageTarget): void {
  if (overlaps(config.storage.target, to))
    throw new WrongSelection('The target and the bucket of the mirror overlap. Name another directory or bucket.');
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
