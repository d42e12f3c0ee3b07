import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';

const everyMs = 3_600_000;

/** Forgets what is old, now and every hour. Finished jobs are the queue's own business (see queues.ts). */
export function startPruning(options: { store: Store; log: Log }) {
  const { store, log } = options;
  let stopped = false;
  let running = Promise.resolve();

  async function round(): Promise<void> {
    try {
      const pruned = await store.prune();
      if (pruned && pruned.syncs + pruned.events > 0) log.info(pruned, 'old runs and events forgotten');
    } catch (err) {
      if (!stopped) log.warn({ err }, 'old runs and events were not forgotten; tried again in an hour');
    }
  }

  const timer = setInterval(() => {
    running = running.then(round);
  }, everyMs);
  timer.unref();
  running = round();

  return {
    async stop(): Promise<void> {
      stopped = true;
      clearInterval(timer);
      await running;
    },
  };
}
