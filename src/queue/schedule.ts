import { createHash } from 'node:crypto';
import type { JobSchedulerJson } from 'bullmq';
import { clockToleranceMs } from '../floor/clock.ts';
import type { Log } from '../floor/log.ts';
import type { Store } from '../store/store.ts';
import { type Polled, type PollInterval, pollInterval } from './poll-interval.ts';
import type { Queues, SyncJob } from './queues.ts';

type Scheduler = JobSchedulerJson<SyncJob>;

/**
 * Finished jobs are deleted. Otherwise, after the clock was set back, one of them may have the id of the next job, and BullMQ
 * does not add that job (see bullmq-issues.md).
 */
const freesItsId = { removeOnComplete: true, removeOnFail: true };

export interface ScheduleOptions {
  store: Store;
  queues: Queues;
  log: Log;
  /** Between incremental syncs of an idle and of an active connection, and between full syncs; in ms. */
  interval: number;
  intervalActive: number;
  reconcileInterval: number;
}

/**
 * One job scheduler per connection and kind of sync. The connection's id spreads them over the interval, so that a
 * thousand connections do not all sync at the same instant.
 */
export class Schedule {
  readonly #options: ScheduleOptions;

  constructor(options: ScheduleOptions) {
    this.#options = options;
  }

  /** Makes the schedulers of one connection as the records say. An inactive connection has none. */
  async alignOne(connectionId: string): Promise<void> {
    const { store, queues } = this.#options;
    const connection = await store.connections.get(connectionId);
    if (connection?.status !== 'active') {
      for (const key of [`sync-${connectionId}`, `full-${connectionId}`]) await queues.syncs.removeJobScheduler(key);
      return;
    }
    await this.#set(connectionId, connection, await store.now(), (key) => queues.syncs.getJobScheduler(key));
  }

  /** Makes all schedulers as the records say. Also repairs the effects of a crash. */
  async align(): Promise<void> {
    const { store, queues } = this.#options;
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
    const now = await store.now();
    for (const each of wanted.values()) await this.#set(each.id, each, now, (key) => present.get(key));
  }

  /** When the next incremental sync of a connection is due. */
  nextSync(connectionId: string, every: number): Date {
    const offset = offsetOf(connectionId, every);
    return new Date(Math.ceil((Date.now() - offset) / every) * every + offset);
  }

  /** Between incremental syncs of a connection. `now`: by the database's clock, in epoch milliseconds. */
  pollInterval(connection: Polled, now: number): PollInterval {
    return pollInterval(connection, now, this.#options);
  }

  #runsOf(connectionId: string, connection: Polled, now: number) {
    return [
      { key: `sync-${connectionId}`, every: this.pollInterval(connection, now).interval, mode: 'incremental' },
      { key: `full-${connectionId}`, every: this.#options.reconcileInterval, mode: 'full' },
    ] as const;
  }

  /** `find`: the scheduler of a key, if there is one. */
  async #set(
    connectionId: string,
    connection: Polled,
    now: number,
    find: (key: string) => Promise<Scheduler | undefined> | Scheduler | undefined,
  ): Promise<void> {
    const { queues, log } = this.#options;
    for (const { key, every, mode } of this.#runsOf(connectionId, connection, now)) {
      const scheduler = await find(key);
      if (await this.#isRight(scheduler, every)) continue;
      // An existing one would keep the time of its next run.
      if (scheduler) await queues.syncs.removeJobScheduler(key);
      await queues.syncs.upsertJobScheduler(
        key,
        { every, offset: offsetOf(connectionId, every) },
        { name: mode === 'full' ? 'full sync' : 'sync', data: { connectionId, mode }, opts: freesItsId },
      );
      log.debug({ event: 'schedule.set', connectionId, mode, every }, 'sync schedule set');
    }
  }

  /**
   * Whether a scheduler can stay. It is replaced if its interval has changed, if its next run is too far ahead because the clock was
   * ahead, or if that run is late and has no job (see `freesItsId`).
   */
  async #isRight(scheduler: Scheduler | undefined, every: number): Promise<boolean> {
    if (!scheduler || Number(scheduler.every) !== every) return false;
    const { key, next = 0 } = scheduler;
    const wait = next - Date.now();
    if (wait > every + clockToleranceMs) return false;
    if (wait > -clockToleranceMs) return true;
    return (await this.#options.queues.syncs.getJob(`repeat:${key}:${next}`)) !== undefined;
  }
}

function offsetOf(connectionId: string, every: number): number {
  return createHash('sha256').update(connectionId).digest().readUInt32BE(0) % every;
}
