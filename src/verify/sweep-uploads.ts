import { setTimeout as sleep } from 'node:timers/promises';
import { every } from '../every.ts';
import type { Log } from '../log.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';

const day = 24 * 3_600_000;
/** How often it is asked whether the work is due; and when it is again after it failed. */
const lookMs = 10 * 60_000;
const retryMs = 3_600_000;

/** What an upload that nobody knows must be older than, and how long one in the records may come to rest. */
const ages = { ageMs: day, patienceMs: 7 * day };

/** Once a day one process clears away what was begun in the store and given up. */
export function startSweeping(options: { store: Store; storage: Storage; breaker: CircuitBreaker; log: Log }) {
  const { store, storage, breaker, log } = options;
  const stopping = new AbortController();
  const { signal } = stopping;

  async function look(): Promise<void> {
    if (breaker.open !== undefined || !(await store.chores.take('uploads', retryMs))) return;
    const ended = await sweepUploads({ store, storage }, { ...ages, signal });
    await store.chores.done('uploads', day);
    if (ended > 0) log.info({ uploads: ended }, 'uploads that were given up are cleared away');
  }

  const failed = 'uploads that were given up are not cleared away; it is tried again';
  const running = every(lookMs, look, { signal, log, failed });

  return {
    async stop(): Promise<void> {
      stopping.abort(new Error('shutting down'));
      // A store that does not answer must not hold up the end.
      await Promise.race([running, sleep(1000, undefined, { ref: false })]);
    },
  };
}

/**
 * The records forget uploads whose assets want them no more, then the store those that the records do not know. In this
 * order: whatever dies in between is found by its key the next time. Returns how many the store has forgotten.
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
