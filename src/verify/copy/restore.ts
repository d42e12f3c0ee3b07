import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';
import { type CopyOptions, type CopyProgress, copyEach, countSelected, nothingCopied } from './copy-each.ts';
import { type Copy, type Selection, selectCopies } from './select-copies.ts';

interface RestoreDeps {
  store: Pick<Store, 'assets' | 'versions' | 'connections' | 'now'>;
  storage: Storage;
  target: Storage;
  /** How long superseded files are kept, in ms. */
  keepVersions: number;
}

type RestoreOptions = CopyOptions & { selection: Selection };

/**
 * Copies the selected files to `target`, under the same keys, each verified by length and checksum. The record of an asset is
 * written last. Files that are there already are compared and stay, so that a restore can be continued.
 * @throws WrongSelection
 */
export async function restore(deps: RestoreDeps, options: RestoreOptions): Promise<CopyProgress> {
  const { store, keepVersions } = deps;
  const { selection, onProblem, onProgress, signal } = options;
  const progress: CopyProgress = { ...nothingCopied };
  progress.total = await countSelected(selectCopies(store, selection), signal);
  onProgress(progress);
  const { asOf } = selection;
  if (asOf && (await store.now()) - keepVersions > asOf.getTime()) {
    onProblem(
      'KEEP_VERSIONS is shorter than the time since --as-of: files that were superseded soon after it are no longer kept',
    );
  }
  await copyEach(deps, underSameKeys(selectCopies(store, selection)), progress, options);
  return progress;
}

async function* underSameKeys(copies: ReturnType<typeof selectCopies>) {
  for await (const copy of copies)
    yield 'problem' in copy ? copy : { ...copy, files: copy.files.map((file) => toCopy(copy, file)) };
}

const toCopy = ({ contentType }: Copy, { key, role, ...file }: Copy['files'][number]) => ({
  ...file,
  to: key,
  contentType: role === 'media' ? contentType : types[role],
});

const types = {
  record: 'application/json',
  captions: 'text/vtt; charset=utf-8',
  text: 'text/plain; charset=utf-8',
  transcript: 'application/json',
  thumbnail: undefined,
} as const;
