import { isTooMany, logHeld } from '../floor/held-changes.ts';
import type { Run, SyncDeps } from './deps.ts';

/** Assets that are released at a time. */
const batchSize = 1000;

/**
 * Judges the files of a company that were set aside because they would replace stored ones. If they are too many, together
 * with those of the last hours, none is released until an operator accepts it (`acceptReplaced`) or the library has the old
 * files again. An operator accepts what was set aside before the request: what this listing finds is judged like any other.
 * If a follow-up check sets a file aside after this count, the file waits for the next sync.
 * `unlimited`: the listing was not limited to a part of the company.
 */
export async function judgeReplaced(
  deps: SyncDeps,
  run: Run,
  companyId: string,
  { unlimited }: { unlimited: boolean },
): Promise<void> {
  const { replacements } = deps.store;
  const { sync, lease, signal } = run;
  const { connectionId } = sync;
  const company = { sync, lease, companyId };
  const release = async (which: 'own' | 'settled' | 'all', until: string | Date) => {
    for (let released = batchSize; released === batchSize; ) {
      signal.throwIfAborted();
      released = await replacements.release(company, { which, until, limit: batchSize });
      if (released > 0) deps.onWork();
    }
  };
  if (sync.scope.acceptReplaced) {
    await release('all', sync.requestedAt);
    await replacements.forgetReleased(company);
  }
  const { until, ...found } = await replacements.count(company);
  const isHeld = found.sample.length > 0 && isTooMany('replaced', found, run.settings);
  if (!isHeld) await release(unlimited ? 'settled' : 'own', until);
  const isNew = await replacements.saveHeld(company, isHeld ? found : undefined);
  const change = { ...found, kind: 'replaced', connectionId, companyId } as const;
  if (isNew) logHeld(deps.log, change);
  if (isHeld) run.problems.addHeld(change);
}
