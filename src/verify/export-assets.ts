import { PassThrough } from 'node:stream';
import { concurrently } from '../concurrently.ts';
import { reasonOf, StorageUnavailable } from '../errors.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';
import { copyFile } from './copy-file.ts';
import { manifestHead, manifestLines } from './export-manifest.ts';
import { manifestName } from './export-names.ts';
import { type ExportedAsset, type ExportSelection, selectExports } from './select-exports.ts';

/** The progress of an export, and its result at the end. */
export interface Exporting {
  /** Selected assets and the bytes of their files; undefined until they are counted. */
  total: { assets: number; bytes: number } | undefined;
  /** Assets whose files are at the target. */
  exported: number;
  /** Of all files at the target. */
  bytes: number;
  /** Of the exported ones, those that were there before. */
  present: number;
  /** Those that could not be exported, or are not in the bucket. */
  failed: number;
}

export interface ExportDeps {
  store: Pick<Store, 'assets' | 'connections'>;
  storage: Storage;
}

export interface ExportOptions {
  selection: ExportSelection;
  /** Called with one sentence for each problem. */
  onProblem: (line: string) => void;
  onProgress: (progress: Readonly<Exporting>) => void;
  signal: AbortSignal;
}

/** Assets that are copied at once. */
const atOnce = 4;
const batch = 64;

/** Counts what is selected. */
export async function countExports({ store }: ExportDeps, { selection, signal }: ExportOptions) {
  const total = { assets: 0, bytes: 0 };
  for await (const one of selectExports(store, selection)) {
    signal.throwIfAborted();
    total.assets++;
    if (!('problem' in one)) total.bytes += one.bytes;
  }
  return total;
}

/**
 * Copies the files of the selected assets to `target`, each verified, and writes a manifest of those that are there. Files that
 * are there already are compared and stay, so that an export can be continued.
 */
export async function exportAssets(
  deps: ExportDeps & { target: Storage },
  options: ExportOptions & { overwrite: boolean },
): Promise<Exporting> {
  const { onProgress, signal } = options;
  const progress: Exporting = { total: undefined, exported: 0, bytes: 0, present: 0, failed: 0 };
  progress.total = await countExports(deps, options);
  onProgress(progress);
  const manifest = new PassThrough();
  manifest.write(manifestHead);
  const headers = { contentType: 'text/csv; charset=utf-8', signal };
  const written = deps.target.put(manifestName, manifest, headers);
  // It is awaited at the end, also if it fails before.
  written.catch(() => {});
  try {
    await exportEach(deps, options, progress, (lines) => manifest.write(lines));
    manifest.end();
    await written;
  } catch (error) {
    manifest.destroy(error as Error);
    throw error;
  }
  return progress;
}

async function exportEach(
  deps: ExportDeps & { target: Storage },
  options: ExportOptions & { overwrite: boolean },
  progress: Exporting,
  list: (lines: string) => void,
): Promise<void> {
  const { selection, onProblem, signal } = options;
  let waiting: ExportedAsset[] = [];
  const copyWaiting = async () => {
    await concurrently(waiting, atOnce, async (one) => {
      if (await exportAsset(deps, options, one, progress)) list(manifestLines(one));
    });
    waiting = [];
  };
  for await (const one of selectExports(deps.store, selection)) {
    signal.throwIfAborted();
    if ('problem' in one) {
      progress.failed++;
      onProblem(`asset ${one.assetId}: ${one.problem}`);
    } else waiting.push(one);
    if (waiting.length >= batch) await copyWaiting();
  }
  await copyWaiting();
}

/** False: it could not be exported. */
async function exportAsset(
  deps: ExportDeps & { target: Storage },
  { overwrite, onProblem, onProgress, signal }: ExportOptions & { overwrite: boolean },
  one: ExportedAsset,
  progress: Exporting,
): Promise<boolean> {
  let present = true;
  try {
    for (const file of one.files) {
      signal.throwIfAborted();
      const { written, bytes, crc32 } = await copyFile(deps, file, { overwrite, signal });
      Object.assign(file, { bytes, crc32 });
      present &&= !written;
      progress.bytes += bytes;
      onProgress(progress);
    }
    progress.exported++;
    if (present) progress.present++;
    return true;
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof StorageUnavailable && error.scope === 'all') throw error;
    progress.failed++;
    onProblem(`asset ${one.id}: ${reasonOf(error)}`);
    return false;
  } finally {
    onProgress(progress);
  }
}
