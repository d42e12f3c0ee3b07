import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { LeaseLost, RetryLater, StorageUnavailable, toReason } from '../floor/errors.ts';
import { every } from '../floor/every.ts';
import { bothClocks, keepLease } from '../floor/keep-lease.ts';
import type { Log } from '../floor/log.ts';
import type { SigningKeys } from '../floor/signing.ts';
import type { Timings } from '../floor/timings.ts';
import type { Queues } from '../queue/queues.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';
import { dayOf, writeInventory } from './publish/inventory.ts';
import { unfinishedIn } from './publish/manifest.ts';
import { verify } from './verify.ts';

export interface RunVerificationsDeps {
  store: Store;
  storage: Storage;
  queues: Pick<Queues, 'offerSyncs'>;
  log: Log;
  instance: string;
  timings: Timings;
  signingKeys?: SigningKeys | undefined;
  keepVersions: number;
  goneRetention: number;
  now?: () => Date;
}

const inventoryCheckMs = 60_000;
/** When an inventory that could not be written is tried again. */
const inventoryRetryMs = 10_000;
const mostFailures = 5;

/**
 * Runs requested and scheduled verifications, and writes the inventory of each day. One process at a time does each, under a
 * lease in the database; when it dies, another continues.
 */
export function startVerifications(
  deps: RunVerificationsDeps & {
    /** How often the whole bucket is compared with the records. */
    reconcileInterval: number;
  },
) {
  const { store, log, reconcileInterval, timings } = deps;
  // Let a process that has just started do more urgent work first.
  const repeating = {
    failed: (err: unknown) =>
      log.warn({ event: 'verification.round_failed', err }, 'waiting verifications not started, will retry'),
    later: true,
  };
  const inventoryFailed = (err: unknown) =>
    log.warn({ event: 'inventory.failed', err }, 'inventory not written, will retry');
  const scheduled = [
    every(timings.poll, (signal) => runVerification(deps, signal), repeating),
    every(inventoryCheckMs, (signal) => runInventory(deps, signal), { ...repeating, failed: inventoryFailed }),
    every(timings.scheduleCheck, () => store.verifications.requestScheduledIfDue(reconcileInterval), repeating),
  ];
  return { stop: () => Promise.all(scheduled.map((work) => work.stop())) };
}

/** Runs the next verification that waits or was interrupted. */
async function runVerification(deps: RunVerificationsDeps, stop: AbortSignal): Promise<void> {
  const { store, log } = deps;
  const { verificationLease: leaseMs, verificationRetry } = deps.timings;
  const owner = `${deps.instance} ${randomUUID()}`;
  const since = bothClocks();
  const run = await store.verifications.takeNext(owner, leaseMs);
  if (!run) return;
  const renew = () => store.verifications.renew(run.id, owner, leaseMs);
  const lease = keepLease(`the verification ${run.id}`, { leaseMs, stop, since, renew });
  const { signal } = lease;
  try {
    await verify({ ...deps, writeInventory: (signal) => inventoryNow(deps, signal) }, run, owner, signal);
  } catch (error) {
    if (error instanceof LeaseLost) return;
    if (signal.aborted) {
      await store.verifications.release(run.id, owner);
      return;
    }
    const reason = toReason(error);
    const failures = await store.verifications.postpone(run.id, owner, reason, verificationRetry);
    if (failures === 1) {
      log.warn(
        { event: 'verification.interrupted', verificationId: run.id, err: error },
        'verification interrupted, will resume',
      );
    }
    // Waits while the bucket is unavailable or asks to slow down. Other errors end the verification if they repeat.
    const waits =
      error instanceof StorageUnavailable || (error instanceof RetryLater && error.reason.code !== 'object_refused');
    if (failures >= mostFailures && !waits) {
      await store.verifications.failed(run.id, reason);
      log.error({ event: 'verification.failed', verificationId: run.id, err: error }, 'verification failed');
    }
  } finally {
    lease.end();
  }
}

/** Writes the inventory of the day if it is due, or with `onRequest` again. Returns whether it did. */
export async function runInventory(
  deps: RunVerificationsDeps,
  stop: AbortSignal,
  options: { onRequest?: boolean } = {},
): Promise<boolean> {
  const { store } = deps;
  const now = deps.now?.() ?? new Date();
  const day = dayOf(now);
  const { verificationLease: leaseMs } = deps.timings;
  const owner = `${deps.instance} ${randomUUID()}`;
  const since = bothClocks();
  if (!(await store.inventories.take(day, owner, leaseMs, options))) return false;
  const renew = () => store.inventories.renew(day, owner, leaseMs);
  const lease = keepLease(`the inventory of ${day}`, { leaseMs, stop, since, renew });
  try {
    const manifest = await writeInventory(deps, {
      day,
      now,
      signal: lease.signal,
      fence: lease.fence,
    });
    await store.inventories.written(day, owner, unfinishedIn(manifest));
    return true;
  } catch (error) {
    await store.inventories.release(day, owner, stop.aborted ? 0 : inventoryRetryMs).catch(() => {});
    throw error;
  } finally {
    lease.end();
  }
}

/** Writes the day's inventory again. Waits while another process writes it. Without assets, no inventory is written. */
async function inventoryNow(deps: RunVerificationsDeps, signal: AbortSignal): Promise<void> {
  while (!(await runInventory(deps, signal, { onRequest: true }))) {
    if ((await deps.store.contents.byId({ after: '', limit: 1 })).length === 0) return;
    await sleep(1000, undefined, { signal });
  }
}
