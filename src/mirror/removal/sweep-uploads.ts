import type { Log } from '../../floor/log.ts';
import { type ChoreDeps, startChore } from '../../queue/chore.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';

const day = 24 * 3_600_000;
/** How often to check whether the sweep is due; how soon it is due again after a failure. */
const checkMs = 10 * 60_000;
const retryMs = 3_600_000;

/** Minimum age of an unknown upload, and how long a known one may make no progress, before they are aborted. */
const ages = { ageMs: day, patienceMs: 7 * day };

/** Once a day, one process aborts abandoned uploads. */
export function startSweeping(deps: { store: Store; storage: Storage; log: Log } & ChoreDeps) {
  const { log } = deps;
  const failed = (err: unknown) =>
    log.warn({ event: 'upload.removal_failed', err }, 'abandoned uploads not removed, will retry');
  return startChore(deps, { name: 'uploads', checkMs, everyMs: day, retryMs, failed }, async (signal) => {
    const ended = await sweepUploads(deps, { ...ages, signal });
    if (ended > 0) log.info({ event: 'upload.removed', uploads: ended }, 'abandoned uploads removed');
  });
}

/**
 * Removes uploads that no asset needs from the database, then unknown uploads from the bucket. In this order, so that the
 * next sweep finds the remains of a crash by key. Returns how many were in the bucket.
 */
export async function sweepUploads(
  { store, storage }: { store: Store; storage: Storage },
  { ageMs, patienceMs, signal }: { ageMs: number; patienceMs: number; signal?: AbortSignal },
): Promise<number> {
  await store.uploads.giveUp(patienceMs);
  const olderThan = new Date(Date.now() - ageMs);
  const ended = await storage.sweep({ olderThan, strays: store.uploads.strays, signal });
  // The clocks of store and database may differ.
  await store.uploads.forgetKeys(ageMs + day);
  return ended;
}
