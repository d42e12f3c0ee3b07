import { concurrently } from '../floor/concurrently.ts';
import { reasonOf, StorageUnavailable } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { type ChoreDeps, startChore } from '../queue/chore.ts';
import type { Storage } from '../storage/storage.ts';
import type { LockedMedia, LockedVersion } from '../store/assets/retention.ts';
import type { Store } from '../store/store.ts';

interface Deps {
  store: Store;
  storage: Storage;
  metrics: Metrics;
  log: Log;
  config: { keepVersions: number };
  signal: AbortSignal;
}

interface Lockable {
  /** Of the asset. */
  id: string;
  key: string;
  versionId?: string | null;
  /** A lock may not last longer. */
  expiresAt?: Date | null;
}

/** Assets per page, and how many are extended at once. */
const pageSize = 200;
const atOnce = 8;
const longestPauseMs = 3_600_000;

/**
 * Extends the locks of media and of kept versions while their asset is in the library: at the latest when half of the retention
 * is left. A version is not locked for longer than it is kept. One process at a time does this; each page is saved, so an
 * interrupted pass continues.
 */
export function startExtendingLocks(deps: Omit<Deps, 'signal'> & ChoreDeps) {
  const { storage, log } = deps;
  if (!storage.lock) return undefined;
  const everyMs = Math.min(longestPauseMs, storage.lock.ms / 8);
  const failed = (err: unknown) => log.warn({ event: 'lock.extension_failed', err }, 'locks not extended, will retry');
  return startChore(deps, { name: 'extend-locks', everyMs, failed }, (signal) => extendLocks({ ...deps, signal }));
}

/** Extends each lock that ends soon or is not known: after a move to another bucket, all of them. Returns how many. */
export async function extendLocks(deps: Deps): Promise<number> {
  const { retention } = deps.store;
  const { lock } = deps.storage;
  await retention.saveLockedBucket(lock!.place);
  const ms = lock!.ms / 2;
  const { keepVersions: keepMs } = deps.config;
  const of = { limit: pageSize, ms, keepMs };
  const nextMedia = (after?: LockedMedia) => retention.mediaLocks({ ...of, after });
  const media = await extendAll(deps, nextMedia, retention.saveLocks);
  const nextVersions = (after?: LockedVersion) => retention.versionLocks({ ...of, after });
  const versions = await extendAll(deps, nextVersions, retention.saveVersionLocks);
  if (media + versions > 0) deps.log.info({ event: 'lock.extended', assets: media, versions }, 'locks extended');
  return media + versions;
}

async function extendAll<T extends Lockable>(
  { storage, metrics, log, signal }: Deps,
  next: (after?: T) => Promise<T[]>,
  save: (locks: (T & { until: Date })[]) => Promise<void>,
): Promise<number> {
  let extended = 0;
  for (let after: T | undefined; !signal.aborted; ) {
    const page = await next(after);
    const locks: (T & { until: Date })[] = [];
    try {
      await concurrently(page, atOnce, async (lockable) => {
        if (signal.aborted) return;
        const { id, key, versionId, expiresAt } = lockable;
        try {
          const options = { versionId: versionId ?? undefined, atMost: expiresAt ?? undefined };
          const until = await storage.lock!.extend(key, options);
          if (until) locks.push({ ...lockable, until });
        } catch (error) {
          metrics.lockExtensions.inc({ result: 'failed' });
          if (error instanceof StorageUnavailable) throw error;
          const fields = { assetId: id, ...(versionId && { versionId }), reason: reasonOf(error) };
          log.warn({ event: 'lock.not_extended', ...fields }, 'lock not extended, will retry');
        }
      });
    } finally {
      await save(locks);
      metrics.lockExtensions.inc({ result: 'extended' }, locks.length);
    }
    extended += locks.length;
    after = page.at(-1);
    if (page.length < pageSize) break;
  }
  return extended;
}
