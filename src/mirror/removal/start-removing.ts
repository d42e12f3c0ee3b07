import { every } from '../../floor/every.ts';
import type { Timings } from '../../floor/timings.ts';
import { type ChoreDeps, startChore } from '../../queue/chore.ts';
import { eraseAssets } from './erase.ts';
import type { RemovalDeps } from './lease-for-removal.ts';
import { removeGone, removeLeftovers } from './remove-gone.ts';

const hour = 3_600_000;

/**
 * Erases assets soon after the request. Every hour, removes assets that were gone for GONE_RETENTION; after a downtime, an outage of
 * the bucket or a change of the clock, nothing is removed for up to a day.
 */
export function startRemoving(
  { store, storage, breaker, log, timings }: Omit<RemovalDeps, 'leaseMs' | 'signal'> & ChoreDeps & { timings: Timings },
  { goneRetention, keyTemplate }: { goneRetention: number; keyTemplate: string },
) {
  const deps = { store, storage, log, leaseMs: timings.assetLease };
  const failed = (err: unknown) => log.warn({ event: 'removal.failed', err }, 'removal failed, will retry');
  const everyMs = Math.min(hour, goneRetention / 8);
  const graceMs = Math.min(24 * hour, goneRetention);
  const chore = { name: 'remove', everyMs, graceMs, failed };
  const removeDue = async (signal: AbortSignal) => {
    await removeLeftovers({ ...deps, signal });
    await removeGone({ ...deps, signal }, goneRetention);
  };
  const running = [
    // A bucket that does not answer must not delay the shutdown.
    every(timings.sweep, (signal) => eraseAssets({ ...deps, keyTemplate, signal }), { failed, stopMs: 1000 }),
    startChore({ store, breaker }, chore, removeDue),
  ];
  return { stop: () => Promise.all(running.map((work) => work.stop())) };
}
