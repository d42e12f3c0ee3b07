import { concurrently } from '../concurrently.ts';
import { reasonOf, StorageUnavailable } from '../errors.ts';
import { every } from '../every.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Storage } from '../storage/storage.ts';
import type { LockedMedia } from '../store/assets/retention.ts';
import type { Store } from '../store/store.ts';

interface Deps {
  store: Store;
  storage: Storage;
  metrics: Metrics;
  log: Log;
  signal: AbortSignal;
}

/** Assets per page, and how many are extended at once. */
const pageSize = 200;
const atOnce = 8;
const longestPauseMs = 3_600_000;
const chore = 'extend-locks';

/**
 * Extends the locks of media while its asset is in the library: at the latest when half of the retention is left. One
 * process at a time does this; each page is saved, so an interrupted pass continues.
 */
export function startExtendingLocks({ store, storage, metrics, log }: Omit<Deps, 'signal'>) {
  const { lock } = storage;
  if (!lock) return undefined;
  const pauseMs = Math.min(longestPauseMs, lock.ms / 8);
  const pass = async (signal: AbortSignal) => {
    if (!(await store.chores.take(chore, pauseMs))) return;
    await extendLocks({ store, storage, metrics, log, signal });
  };
  const failed = (err: unknown) => log.warn({ event: 'lock.extension_failed', err }, 'locks not extended, will retry');
  return every(pauseMs, pass, { failed });
}

/** Extends each lock that ends soon or is not known. Returns how many. */
export async function extendLocks(deps: Deps): Promise<number> {
  const { store, storage, log, signal } = deps;
  const { ms } = storage.lock!;
  let extended = 0;
  for (let after: { until: Date; id: string } | undefined; !signal.aborted; ) {
    const page = await store.retention.endingLocks({ after, ms: ms / 2, limit: pageSize });
    extended += await extendPage(deps, page);
    after = page.at(-1);
    if (page.length < pageSize) break;
  }
  for (let after = ''; !signal.aborted; ) {
    const page = await store.retention.unknownLocks({ after, limit: pageSize });
    extended += await extendPage(deps, page);
    after = page.at(-1)?.id ?? '';
    if (page.length < pageSize) break;
  }
  if (extended > 0) log.info({ event: 'lock.extended', assets: extended }, 'locks extended');
  return extended;
}

async function extendPage({ store, storage, metrics, log, signal }: Deps, page: LockedMedia[]): Promise<number> {
  const locks: { id: string; lease: number; until: Date }[] = [];
  try {
    await concurrently(page, atOnce, async ({ id, lease, key }) => {
      if (signal.aborted) return;
      try {
        const until = await storage.lock!.extend(key);
        if (until) locks.push({ id, lease, until });
      } catch (error) {
        metrics.lockExtensions.inc({ result: 'failed' });
        if (error instanceof StorageUnavailable) throw error;
        log.warn({ event: 'lock.not_extended', assetId: id, reason: reasonOf(error) }, 'lock not extended, will retry');
      }
    });
  } finally {
    await store.retention.saveLocks(locks);
    metrics.lockExtensions.inc({ result: 'extended' }, locks.length);
  }
  return locks.length;
}
