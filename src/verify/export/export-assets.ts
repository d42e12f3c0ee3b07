import { PassThrough } from 'node:stream';
import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';
import { type CopyOptions, type CopyProgress, copyEach, countSelected, nothingCopied } from '../copy/copy-each.ts';
import { WrongSelection } from '../copy/select-copies.ts';
import { manifestHead, manifestLines } from './export-list.ts';
import { manifestName } from './export-names.ts';
import { type ExportSelection, selectExports } from './select-exports.ts';

export interface ExportDeps {
  store: Pick<Store, 'assets' | 'connections'>;
  storage: Storage;
}

export type ExportOptions = CopyOptions & { selection: ExportSelection };

/**
 * Copies the files of the selected assets to `target`, each verified, and writes a manifest of those that are there. Files that
 * are there already are compared and stay, so that an export can be continued.
 * @throws WrongSelection if the target has another file with the name of the manifest
 */
export async function exportAssets(
  deps: ExportDeps & { target: Storage },
  options: ExportOptions,
): Promise<CopyProgress> {
  const { selection, onProgress, signal } = options;
  const selected = () => selectExports(deps.store, selection);
  const progress: CopyProgress = { ...nothingCopied };
  if (!options.overwrite) await requireOwnManifest(deps.target, signal);
  progress.total = await countSelected(selected(), signal);
  onProgress(progress);
  const manifest = new PassThrough();
  manifest.write(manifestHead);
  const headers = { contentType: 'text/csv; charset=utf-8', signal };
  const written = deps.target.put(manifestName, manifest, headers);
  // If this fails before it is awaited, the error must not end the process.
  written.catch(() => {});
  try {
    await copyEach(deps, selected(), progress, {
      ...options,
      onCopied: (one) => manifest.write(manifestLines(one)),
    });
    manifest.end();
    await written;
  } catch (error) {
    manifest.destroy(error as Error);
    // Its draft must be gone before the target is closed.
    await written.catch(() => {});
    throw error;
  }
  return progress;
}

/** The manifest of an earlier export is replaced, and no other file. */
async function requireOwnManifest(target: Storage, signal: AbortSignal): Promise<void> {
  const there = await target.head(manifestName, { signal });
  if (!there) return;
  const range = { first: 0, last: manifestHead.length - 1 };
  const chunks = await Array.fromAsync((await target.get(manifestName, { range, signal })) ?? []);
  if (Buffer.concat(chunks).toString() === manifestHead) return;
  throw new WrongSelection(`The target has a ${manifestName} that no export wrote. Use --overwrite to replace it.`);
}
