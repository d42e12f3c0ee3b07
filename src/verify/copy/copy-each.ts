import { batches } from '../../floor/batches.ts';
import { concurrently } from '../../floor/concurrently.ts';
import { reasonOf, StorageUnavailable } from '../../floor/errors.ts';
import type { Storage } from '../../storage/storage.ts';
import { copyFile, type FileToCopy } from './copy-file.ts';

/** The progress of a restore or an export, and its result at the end. */
export interface CopyProgress {
  /** Selected assets and the bytes of their files; undefined until they are counted. */
  total: { assets: number; bytes: number } | undefined;
  /** Assets that are complete at the target. */
  copied: number;
  /** Of all files at the target. */
  bytes: number;
  /** Assets that were complete at the target before. */
  present: number;
  /** Assets that could not be copied, have no complete copy in the bucket, or of which only an earlier version was copied. */
  failed: number;
}

export const nothingCopied: Readonly<CopyProgress> = { total: undefined, copied: 0, bytes: 0, present: 0, failed: 0 };

export interface CopyOptions {
  /** Replaces files at the target that have other content. */
  overwrite: boolean;
  /** Called with one sentence for each problem. */
  onProblem: (line: string) => void;
  onProgress: (progress: Readonly<CopyProgress>) => void;
  signal: AbortSignal;
}

/** An asset of which nothing can be copied, and why: a sentence. */
export interface NotCopied {
  assetId: string;
  problem: string;
}

/** Assets that are copied at once. */
const atOnce = 4;
const batchSize = 64;

/** Counts what is selected. */
export async function countSelected<T extends { bytes: number }>(
  selected: AsyncIterable<T | NotCopied>,
  signal: AbortSignal,
) {
  const total = { assets: 0, bytes: 0 };
  for await (const one of selected) {
    signal.throwIfAborted();
    total.assets++;
    if (!('problem' in one)) total.bytes += one.bytes;
  }
  return total;
}

/**
 * Copies the files of the selected assets, verifies each, and updates `progress`. Files that are at the target already are
 * compared and stay, so that an interrupted copy can be continued. `onCopied`: called when all files of an asset are there.
 */
export async function copyEach<T extends { assetId: string; files: FileToCopy[]; flaw?: string }>(
  places: { storage: Storage; target: Storage },
  selected: AsyncIterable<T | NotCopied>,
  progress: CopyProgress,
  options: CopyOptions & { onCopied?: (one: T) => void },
): Promise<void> {
  const { onProblem, onProgress, signal } = options;
  const failed = (assetId: string, problem: string) => {
    progress.failed++;
    onProblem(`asset ${assetId}: ${problem}`);
  };
  const copy = async (one: T) => {
    try {
      const isNew = await copyAsset(places, one, progress, options);
      if (one.flaw !== undefined) return failed(one.assetId, one.flaw);
      progress.copied++;
      if (!isNew) progress.present++;
      options.onCopied?.(one);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof StorageUnavailable && error.scope === 'all') throw error;
      failed(one.assetId, reasonOf(error));
    } finally {
      onProgress(progress);
    }
  };
  for await (const batch of batches(selected, batchSize)) {
    await concurrently(batch, atOnce, async (one) => {
      signal.throwIfAborted();
      if ('problem' in one) failed(one.assetId, one.problem);
      else await copy(one);
    });
  }
}

/** False: all files were there before. Also sets length and checksum of each of `files`. */
async function copyAsset(
  places: { storage: Storage; target: Storage },
  { files }: { files: FileToCopy[] },
  progress: CopyProgress,
  { overwrite, onProgress, signal }: CopyOptions,
): Promise<boolean> {
  let isNew = false;
  for (const file of files) {
    signal.throwIfAborted();
    const { written, bytes, crc32 } = await copyFile(places, file, { overwrite, signal });
    Object.assign(file, { bytes, crc32 });
    isNew ||= written;
    progress.bytes += bytes;
    onProgress(progress);
  }
  return isNew;
}
