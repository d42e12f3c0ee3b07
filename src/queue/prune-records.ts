import { every } from '../every.ts';
import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';

const everyMs = 3_600_000;

/** Forgets what is old, now and every hour. Finished jobs are the queue's own business (see queues.ts). */
export function startPruning({ store, log }: { store: Store; log: Log }) {
  const stopping = new AbortController();

  async function prune(): Promise<void> {
    const pruned = await store.prune();
    if (pruned && pruned.syncs + pruned.events + pruned.history > 0) {
      log.info(pruned, 'old runs and events forgotten');
    }
  }

  const failed = 'old runs and events were not forgotten; tried again in an hour';
  const running = every(everyMs, prune, { signal: stopping.signal, log, failed });
  return {
    async stop(): Promise<void> {
      stopping.abort(new Error('shutting down'));
      await running;
    },
  };
}
