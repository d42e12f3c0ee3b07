import { LeaseLost } from '../../floor/errors.ts';
import type { Log } from '../../floor/log.ts';
import { type ChoreDeps, startChore } from '../../queue/chore.ts';
import { changesKey } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import { readCursor } from '../../store/changes/cursor.ts';
import type { ChangeFile } from '../../store/changes/files.ts';
import type { Store } from '../../store/store.ts';
import { putLines } from './put-lines.ts';

export interface WriteChangesDeps {
  store: Pick<Store, 'changes'>;
  storage: Storage;
  log: Log;
}

const everyMs = 60_000;
const pageSize = 1000;

/** Writes the changes of each hour into the bucket, soon after its end. One process at a time does so. */
export function startWritingChanges(deps: WriteChangesDeps & ChoreDeps) {
  const failed = (err: unknown) =>
    deps.log.warn({ event: 'changes.write_failed', err }, 'changes of an hour not written, will retry');
  return startChore(deps, { name: 'changes', everyMs, failed }, (signal) => writeChanges(deps, signal));
}

/** Writes all hours that are over and not written yet. Returns how many. */
export async function writeChanges(deps: WriteChangesDeps, signal: AbortSignal): Promise<number> {
  const { store, log } = deps;
  for (let files = 0; ; files++) {
    signal.throwIfAborted();
    const file = await store.changes.nextFile();
    if (!file) return files;
    const bytes = await write(deps, file, signal);
    await store.changes.fileWritten(file);
    log.info({ event: 'changes.written', hour: file.hour.toISOString(), bytes }, 'changes of an hour written');
  }
}

/** Each attempt writes the same lines, until the file is marked as written. */
function write({ store, storage }: WriteChangesDeps, file: ChangeFile, signal: AbortSignal): Promise<number> {
  async function* changes() {
    for (let after = file.after; ; ) {
      const page = await store.changes.between({ ...file, after }, pageSize);
      yield* page;
      const last = page.at(-1);
      if (!last) return;
      after = readCursor(last.cursor)!;
    }
  }
  const fence = async () => {
    if (!(await store.changes.isNextFile(file))) throw new LeaseLost('a file of changes');
  };
  return putLines(storage, changesKey(file.hour), changes(), { signal, fence });
}
