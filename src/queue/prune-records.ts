import { every } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import type { Store } from '../store/store.ts';

const everyMs = 3_600_000;

/** Deletes old records, now and every hour. The queue deletes finished jobs itself (see backend.ts). */
export function startPruning({ store, log, config }: { store: Store; log: Log; config: { auditRetention: number } }) {
  async function prune(): Promise<void> {
    const pruned = await store.prune({ auditMs: config.auditRetention });
    if (pruned && pruned.syncs + pruned.events + pruned.history > 0) {
      log.info({ event: 'database.pruned', ...pruned }, 'old records deleted');
    }
  }

  const failed = (err: unknown) =>
    log.warn({ event: 'database.prune_failed', err }, 'old records not deleted, will retry');
  return every(everyMs, prune, { failed });
}
