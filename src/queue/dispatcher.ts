import { every, type Repeated } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { Horizon } from '../store/database/correct-future.ts';
import type { Store } from '../store/store.ts';
import type { Queues } from './queues.ts';
import type { Schedule } from './schedule.ts';
import { sweep } from './sweep.ts';

/** If another process is dispatching, this one tries again after this time. */
const busyMs = 5;
/** How often schedules are compared, and times too far in the future corrected. */
const alignMs = 30_000;
/** Comparing many schedules is slow: it takes at most this share of the time. */
const alignShare = 1 / 100;
/** The longest pause because of that. */
const longestAlignPauseMs = 300_000;
/** How long `stop` waits for the current round: a call to an unreachable queue may never return. */
const stopMs = 1000;

export interface DispatcherOptions {
  store: Store;
  queues: Queues;
  schedule: Schedule;
  breaker: CircuitBreaker;
  log: Log;
  perConnection: number;
  horizon: Horizon;
  timings: Timings;
}

/**
 * Puts due assets on the queue unless the bucket is unavailable: a bounded number per connection, in the order of `dispatch`.
 * Recreates jobs that a queue may have lost, and keeps the schedules as the database says.
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #rounds: Repeated;
  readonly #unsubscribe: () => void;
  /** Whether to fill the free slots of all connections, or only of those in `#freed`. */
  #all = true;
  readonly #freed = new Set<string>();
  /** Connections whose settings changed. */
  readonly #changed = new Set<string>();
  // By the monotonic clock.
  #lastAll = Number.NEGATIVE_INFINITY;
  #lastSweep = Number.NEGATIVE_INFINITY;
  #nextAlign = Number.NEGATIVE_INFINITY;
  #connects = 0;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#unsubscribe = options.store.onNotice(({ connectionId }) => {
      if (connectionId !== undefined) this.#changed.add(connectionId);
      this.wake();
    });
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

  /** Call it when the clock of this host was set: checks times and schedules now. */
  clockSet(): void {
    this.#nextAlign = Number.NEGATIVE_INFINITY;
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
    if (this.#options.breaker.openReason === undefined) await this.#dispatch();
    if (performance.now() - this.#lastSweep > this.#options.timings.sweep) {
      const began = performance.now();
      // If more assets may need another connection, the next round sweeps again.
      this.#lastSweep = (await sweep(this.#options)) ? -Infinity : began;
    }
    await this.#alignChanged();
    const { queues } = this.#options;
    // Redis may have lost the schedules.
    if (queues.connects !== this.#connects) this.#nextAlign = Number.NEGATIVE_INFINITY;
    this.#connects = queues.connects;
    // While Redis does not answer, this would hang.
    if (performance.now() > this.#nextAlign && queues.answers) await this.#align();
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

  async #alignChanged(): Promise<void> {
    for (const connectionId of this.#changed) {
      // Before the call, so that a change during it is not missed.
      this.#changed.delete(connectionId);
      await this.#options.schedule.alignOne(connectionId).catch((error) => {
        this.#changed.add(connectionId);
        throw error;
      });
    }
  }

  async #align(): Promise<void> {
    const { store, schedule, horizon, log } = this.#options;
    this.#nextAlign = performance.now() + alignMs;
    const corrected = await store.correctFuture(horizon);
    if (Object.keys(corrected).length > 0) {
      log.warn({ event: 'time.corrected', ...corrected }, 'stored times in the future corrected');
    }
    const began = performance.now();
    await schedule.align();
    const pauseMs = Math.min((performance.now() - began) / alignShare, longestAlignPauseMs);
    this.#nextAlign = Math.max(this.#nextAlign, performance.now() + pauseMs);
  }
}
