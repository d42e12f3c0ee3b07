import { createHash } from 'node:crypto';
import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';
import type { Queues } from './queues.ts';

export type Schedule = ReturnType<typeof createSchedule>;

/**
 * One job scheduler per connection and kind of run, spread over the interval by the connection's id, so that a thousand
 * connections do not all sync at the same instant.
 */
export function createSchedule(options: {
  store: Store;
  queues: Queues;
  log: Log;
  interval: number;
  reconcileInterval: number;
}) {
  const { store, queues, log } = options;
  const intervalOf = (settings: Record<string, unknown>) =>
    typeof settings.syncInterval === 'number' ? settings.syncInterval : options.interval;

  const everyOf = (scheduler: { every?: unknown } | undefined) =>
    scheduler?.every ? Number(scheduler.every) : undefined;

  /** `sync`, `full`: the intervals of the schedulers that it has, in ms. */
  async function setRight(
    connectionId: string,
    settings: Record<string, unknown>,
    sync: number | undefined,
    full: number | undefined,
  ): Promise<void> {
    const every = intervalOf(settings);
    if (sync === every && full === options.reconcileInterval) return;
    const runs = [
      { id: `sync-${connectionId}`, every, mode: 'incremental' },
      { id: `full-${connectionId}`, every: options.reconcileInterval, mode: 'full' },
    ] as const;
    for (const { id, every, mode } of runs) {
      await queues.syncs.upsertJobScheduler(
        id,
        { every, offset: offsetOf(connectionId, every) },
        { name: mode === 'full' ? 'full sync' : 'sync', data: { connectionId, mode } },
      );
    }
    log.debug({ connectionId }, 'schedule set');
  }

  return {
    /** Makes those of one connection what the records say; `align` would, a little later. One that is not active has none. */
    async alignOne(connectionId: string): Promise<void> {
      const connection = await store.connections.get(connectionId);
      const ids = [`sync-${connectionId}`, `full-${connectionId}`];
      if (connection?.status !== 'active') {
        for (const id of ids) await queues.syncs.removeJobScheduler(id);
        return;
      }
      const [sync, full] = await Promise.all(ids.map((id) => queues.syncs.getJobScheduler(id)));
      await setRight(connectionId, connection.settings, everyOf(sync), everyOf(full));
    },

    /** Makes all of them what the records say: also what a crash between the two left undone. */
    async align(): Promise<void> {
      const wanted = new Map((await store.connections.scheduled()).map((c) => [c.id, c]));
      const present = new Map<string, number | undefined>();
      for (let start = 0; ; start += 1000) {
        const page = await queues.syncs.getJobSchedulers(start, start + 999, true);
        for (const scheduler of page) present.set(scheduler.key, everyOf(scheduler));
        if (page.length < 1000) break;
      }
      for (const key of present.keys()) {
        const id = /^(?:sync|full)-(.+)$/.exec(key)?.[1];
        if (id === undefined || !wanted.has(id)) await queues.syncs.removeJobScheduler(key);
      }
      for (const { id, settings } of wanted.values()) {
        await setRight(id, settings, present.get(`sync-${id}`), present.get(`full-${id}`));
      }
    },

    /** When the next incremental run of a connection is due. */
    nextSync(connectionId: string, settings: Record<string, unknown>): Date {
      const every = intervalOf(settings);
      const offset = offsetOf(connectionId, every);
      return new Date(Math.ceil((Date.now() - offset) / every) * every + offset);
    },
  };
}

function offsetOf(connectionId: string, every: number): number {
  return createHash('sha256').update(connectionId).digest().readUInt32BE(0) % every;
}
