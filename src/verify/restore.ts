import { concurrently } from '../concurrently.ts';
import { reasonOf, StorageUnavailable } from '../errors.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';
import { copyFile } from './copy-file.ts';
import { type Copy, type Selection, selectCopies } from './select-copies.ts';

/** The progress of a restore, and its result at the end. */
export interface Restoring {
  /** Selected assets and the bytes of their files; undefined until they are counted. */
  total: { assets: number; bytes: number } | undefined;
  /** Assets that are complete at the target. */
  restored: number;
  /** Of all files at the target. */
  bytes: number;
  /** Of the restored ones, those that were complete before. */
  present: number;
  failed: number;
}

interface RestoreDeps {
  store: Pick<Store, 'assets' | 'versions' | 'connections' | 'now'>;
  storage: Storage;
  target: Storage;
  /** How long superseded files are kept, in ms. */
  keepVersions: number;
}

interface RestoreOptions {
  selection: Selection;
  overwrite: boolean;
  /** Called with one sentence for each problem. */
  onProblem: (line: string) => void;
  onProgress: (progress: Readonly<Restoring>) => void;
  signal: AbortSignal;
}

/** Assets that are copied at once. */
const atOnce = 4;
const batch = 64;

/**
 * Copies the selected files to `target`, under the same keys, each verified by length and checksum. The record of an asset is
 * written last. Files that are there already are compared and stay, so that a restore can be continued.
 * @throws WrongSelection
 */
export async function restore(deps: RestoreDeps, options: RestoreOptions): Promise<Restoring> {
  const { store, keepVersions } = deps;
  const { selection, onProblem, onProgress, signal } = options;
  const progress: Restoring = { total: undefined, restored: 0, bytes: 0, present: 0, failed: 0 };
  const total = { assets: 0, bytes: 0 };
  for await (const copy of selectCopies(store, selection)) {
    total.assets++;
    if (!('problem' in copy)) total.bytes += copy.bytes;
  }
  progress.total = total;
  onProgress(progress);
  const { asOf } = selection;
  if (asOf && (await store.now()) - keepVersions > asOf.getTime()) {
    onProblem(
      'KEEP_VERSIONS is shorter than the time since --as-of: files that were superseded soon after it are no longer kept',
    );
  }

  let waiting: Copy[] = [];
  const copyWaiting = async () => {
    await concurrently(waiting, atOnce, (copy) => restoreAsset(deps, options, copy, progress));
    waiting = [];
  };
  for await (const copy of selectCopies(store, selection)) {
    signal.throwIfAborted();
    if ('problem' in copy) {
      progress.failed++;
      onProblem(`asset ${copy.assetId}: ${copy.problem}`);
    } else waiting.push(copy);
    if (waiting.length >= batch) await copyWaiting();
  }
  await copyWaiting();
  return progress;
}

async function restoreAsset(
  deps: RestoreDeps,
  options: RestoreOptions,
  copy: Copy,
  progress: Restoring,
): Promise<void> {
  const { signal, onProblem, onProgress } = options;
  let present = true;
  try {
    for (const file of copy.files) {
      signal.throwIfAborted();
      const contentType = file.role === 'media' ? copy.contentType : types[file.role];
      const { written, bytes } = await copyFile(deps, { ...file, to: file.key, contentType }, options);
      present &&= !written;
      progress.bytes += bytes;
      onProgress(progress);
    }
    progress.restored++;
    if (present) progress.present++;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof StorageUnavailable && error.scope === 'all') throw error;
    progress.failed++;
    onProblem(`asset ${copy.assetId}: ${reasonOf(error)}`);
  }
  onProgress(progress);
}

const types = {
  record: 'application/json',
  captions: 'text/vtt; charset=utf-8',
  text: 'text/plain; charset=utf-8',
  transcript: 'application/json',
  thumbnail: undefined,
} as const;
