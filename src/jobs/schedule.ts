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
  const isRight = (settings: Record<string, unknown>, sync: number | undefined, full: number | undefined) =>
    sync === intervalOf(settings) && full === options.reconcileInterval;

  async function set(connectionId: string, settings: Record<string, unknown>): Promise<void> {
    const runs = [
      { id: `sync-${connectionId}`, every: intervalOf(settings), mode: 'incremental' },
      { id: `full-${connectionId}`, every: options.reconcileInterval, mode: 'full' },
    ] as const;
    for (const { id, every, mode } of runs) {
      await queues.syncs.upsertJobScheduler(
        id,
        { every, offset: offsetOf(connectionId, every) },
        { name: mode === 'full' ? 'full sync' : 'sync', data: { connectionId, mode } },
      );
    }
  }

  return {
    /** The schedulers of a new connection; `align` would find it a little later. */
    async add(connectionId: string): Promise<void> {
      const connection = await store.connections.get(connectionId);
      if (connection?.status === 'active') await set(connectionId, connection.settings);
    },

    /** Without them: nothing of the connection is run by itself any more. */
    async remove(connectionId: string): Promise<void> {
      for (const kind of ['sync', 'full']) await queues.syncs.removeJobScheduler(`${kind}-${connectionId}`);
    },

    /** Makes those of one connection what the records say. */
    async alignOne(connectionId: string): Promise<void> {
      const connection = await store.connections.get(connectionId);
      const wanted = connection?.status === 'active';
      const [sync, full] = await Promise.all(
        ['sync', 'full'].map((kind) => queues.syncs.getJobScheduler(`${kind}-${connectionId}`)),
      );
      if (!wanted) {
        if (sync || full) await this.remove(connectionId);
      } else if (!isRight(connection.settings, everyOf(sync), everyOf(full))) {
        await set(connectionId, connection.settings);
        log.debug({ connectionId }, 'schedule set');
      }
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
        if (!isRight(settings, present.get(`sync-${id}`), present.get(`full-${id}`))) {
          await set(id, settings);
          log.debug({ connectionId: id }, 'schedule set');
        }
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
