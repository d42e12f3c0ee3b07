import { createHash } from 'node:crypto';
import type { JobSchedulerJson } from 'bullmq';
import { clockToleranceMs } from '../clock.ts';
import type { Log } from '../log.ts';
import type { Store } from '../store/store.ts';
import type { Queues, SyncJob } from './queues.ts';

export type Schedule = ReturnType<typeof createSchedule>;

type Scheduler = JobSchedulerJson<SyncJob>;

/**
 * To be reported, BullMQ 6.7.0, both backends: `updateJobScheduler` adds no job where a finished one is kept as
 * `repeat:KEY:NEXT`, as after the clock was set back. It emits `duplicated` only, and the scheduler never runs again.
 */
const freesItsId = { removeOnComplete: true, removeOnFail: true };

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

  /**
   * Whether a scheduler has this interval, a next run within it, and a job for that. Too far ahead: it was made while the
   * clock was ahead. Without a job it stands still, see `freesItsId`.
   */
  async function isRight(scheduler: Scheduler | undefined, every: number): Promise<boolean> {
    if (!scheduler || Number(scheduler.every) !== every) return false;
    const { key, next = 0 } = scheduler;
    const wait = next - Date.now();
    if (wait > every + clockToleranceMs) return false;
    return wait > -clockToleranceMs || (await queues.syncs.getJob(`repeat:${key}:${next}`)) !== undefined;
  }

  /** `find`: the scheduler of a key, if there is one. */
  async function setRight(
    connectionId: string,
    settings: Record<string, unknown>,
    find: (key: string) => Promise<Scheduler | undefined> | Scheduler | undefined,
  ): Promise<void> {
    const runs = [
      { key: `sync-${connectionId}`, every: intervalOf(settings), mode: 'incremental' },
      { key: `full-${connectionId}`, every: options.reconcileInterval, mode: 'full' },
    ] as const;
    for (const { key, every, mode } of runs) {
      const scheduler = await find(key);
      if (await isRight(scheduler, every)) continue;
      // One that is there would keep the time of its next run.
      if (scheduler) await queues.syncs.removeJobScheduler(key);
      await queues.syncs.upsertJobScheduler(
        key,
        { every, offset: offsetOf(connectionId, every) },
        { name: mode === 'full' ? 'full sync' : 'sync', data: { connectionId, mode }, opts: freesItsId },
      );
      log.debug({ connectionId, mode, every }, 'schedule set');
    }
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
      await setRight(connectionId, connection.settings, (key) => queues.syncs.getJobScheduler(key));
    },

    /** Makes all of them what the records say: also what a crash between the two left undone. */
    async align(): Promise<void> {
      const wanted = new Map((await store.connections.scheduled()).map((c) => [c.id, c]));
      const present = new Map<string, Scheduler>();
      for (let start = 0; ; start += 1000) {
        const page = await queues.syncs.getJobSchedulers(start, start + 999, true);
        for (const scheduler of page) present.set(scheduler.key, scheduler);
        if (page.length < 1000) break;
      }
      for (const key of present.keys()) {
        const id = /^(?:sync|full)-(.+)$/.exec(key)?.[1];
        if (id === undefined || !wanted.has(id)) await queues.syncs.removeJobScheduler(key);
      }
      for (const { id, settings } of wanted.values()) {
        await setRight(id, settings, (key) => present.get(key));
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
