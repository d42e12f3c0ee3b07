import { every, type Repeated } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { LongestWaits } from '../store/database/correct-future.ts';
import type { Store } from '../store/store.ts';
import type { SyncIntervals } from '../store/syncs/schedule.ts';
import type { Queues } from './queues.ts';

/** If another process is dispatching, this one tries again after this time. */
const busyMs = 5;
/** The search for due syncs reads all connections. It takes at most this share of the time, unless the pause would be too long. */
const scheduleShare = 1 / 50;
const longestSchedulePauseMs = 15_000;
/** Scheduled syncs that are requested by one statement. */
const requestedAtOnce = 1000;
/** How often times too far in the future are corrected. */
const correctMs = 30_000;
/** How long `stop` waits for the current round: a call to an unreachable queue may never return. */
const stopMs = 1000;
/** Assets that get another connection at once: a million would take minutes, in which nothing is dispatched. */
const adoptedAtOnce = 2000;

export interface DispatcherOptions {
  store: Store;
  queues: Queues;
  intervals: SyncIntervals;
  breaker: CircuitBreaker;
  log: Log;
  perConnection: number;
  longestWaits: LongestWaits;
  timings: Timings;
}

/**
 * Puts due assets on the queue unless the bucket is unavailable: a bounded number per connection, in the order of `dispatch`.
 * Requests scheduled syncs, and recreates jobs that a queue may have lost.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #rounds: Repeated;
  readonly #unsubscribe: () => void;
  /** Whether to fill the free slots of all connections, or only of those in `#freed`. */
  #all = true;
  readonly #freed = new Set<string>();
  // By the monotonic clock.
  #lastAll = Number.NEGATIVE_INFINITY;
  #nextSchedule = Number.NEGATIVE_INFINITY;
  #lastSweep = Number.NEGATIVE_INFINITY;
  #lastCorrection = Number.NEGATIVE_INFINITY;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#unsubscribe = options.store.onNotice(() => this.wake());
    const { log, timings } = options;
    this.#rounds = every(timings.poll, () => this.#round(), {
      failed: (err) => log.error({ event: 'dispatch.failed', err }, 'database or queue failed, will retry'),
      recovered: () => log.info({ event: 'dispatch.recovered' }, 'database and queue answer again'),
      stopMs,
    });
  }

  /** Call it when something fell due. */
  wake(): void {
    this.#all = true;
    this.#rounds.wake();
  }

  /** Call it when the clock of this host was set: checks times now. */
  clockSet(): void {
    this.#lastCorrection = Number.NEGATIVE_INFINITY;
    this.wake();
  }

  /** Call it when a slot of a connection became free. Slots that become free during a round are filled together by the next. */
  freed(connectionId: string): void {
    this.#freed.add(connectionId);
    this.#rounds.wake();
  }

  async stop(): Promise<void> {
    this.#unsubscribe();
    await this.#rounds.stop();
  }

  async #round(): Promise<void> {
    const { breaker, timings } = this.#options;
    if (breaker.openReason === undefined) await this.#dispatch();
    if (performance.now() >= this.#nextSchedule) await this.#requestSyncs();
    const now = performance.now();
    if (now - this.#lastSweep > timings.sweep) {
      // If more assets may need another connection, the next round sweeps again.
      this.#lastSweep = (await this.#sweep()) ? Number.NEGATIVE_INFINITY : now;
    }
    if (now - this.#lastCorrection > correctMs) {
      this.#lastCorrection = now;
      await this.#correctTimes();
    }
  }

  async #dispatch(): Promise<void> {
    const { store, queues, perConnection } = this.#options;
    // Once per `poll`, all connections are filled, even if slots become free all the time: assets may become due without a notice.
    if (performance.now() - this.#lastAll >= this.#options.timings.poll) this.#all = true;
    const only = this.#all ? undefined : [...this.#freed];
    if (this.#all) this.#lastAll = performance.now();
    this.#all = false;
    this.#freed.clear();
    if (only?.length === 0) return;
    const due = await store.assets.dispatch({ perConnection, only });
    if (due) return queues.addAssets(due);
    // Another process is dispatching. It may have read these connections before their slots became free.
    this.#all ||= only === undefined;
    for (const connectionId of only ?? []) this.#freed.add(connectionId);
    setTimeout(this.#rounds.wake, busyMs);
  }

  async #requestSyncs(): Promise<void> {
    const { store, queues, intervals, timings } = this.#options;
    const began = performance.now();
    const due = await store.syncs.requestDue(intervals, requestedAtOnce);
    const pauseMs = Math.min((performance.now() - began) / scheduleShare, longestSchedulePauseMs);
    const areAll = due.length < requestedAtOnce;
    this.#nextSchedule = began + (areAll ? Math.max(timings.poll, pauseMs) : timings.poll);
    await queues.addSyncs(due);
  }

  /**
   * Adds lost jobs and waiting syncs to the queue again, and gives the assets of connections that cannot work to others. Also adds up
   * the counts of assets. True: more assets may need another connection.
   */
  async #sweep(): Promise<boolean> {
    const { store, queues, timings } = this.#options;
    await store.counts.fold();
    await queues.addAssets(await store.assets.overdue(timings.staleJob));
    await queues.addSyncs(await store.syncs.unattended(timings.staleJob));
    return (await store.connections.adopt(adoptedAtOnce)) === adoptedAtOnce;
  }

  async #correctTimes(): Promise<void> {
    const { store, longestWaits, log } = this.#options;
    const corrected = await store.correctFuture(longestWaits);
    if (Object.keys(corrected).length > 0) {
      log.warn({ event: 'time.corrected', ...corrected }, 'stored times in the future corrected');
    }
  }
}
