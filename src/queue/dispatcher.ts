import { setTimeout as sleep } from 'node:timers/promises';
import { applyFilters, type FilterDefaults } from '../filters/apply-filters.ts';
import type { Log } from '../log.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { Horizon } from '../store/database/correct-future.ts';
import type { Store } from '../store/store.ts';
import type { Queues } from './queues.ts';
import type { Schedule } from './scheduler.ts';

export type Dispatcher = ReturnType<typeof startDispatcher>;

/** How often the records are asked for what fell due, when nobody says so earlier. */
const tickMs = 1000;
/** A slot that became free waits this long for others, so that one batch fills them all. */
const batchMs = 5;
/** How often lost jobs are looked for; how often schedules are compared, and times that lie too far ahead corrected. */
const sweepMs = 5000;
const alignMs = 30_000;
/** With many schedules and assets that takes its time, and is no more than this part of all. */
const alignShare = 1 / 100;
/** How long a job may be unseen before it counts as lost. */
const staleMs = 20_000;
/** A queue that is away answers nothing, not even with an error. */
const stopMs = 1000;
/** So many assets that were made again from the bucket get their connection at a time. */
const adoptedAtOnce = 5000;

/**
 * Puts due assets on the queue: a bounded number per connection, round robin, newest first. And makes again, from the
 * records, what a queue may have lost: jobs of assets, runs that wait or were interrupted, schedules. And goes on with
 * changed settings where the process has ended that was to apply them.
 */
export function startDispatcher(options: {
  store: Store;
  queues: Queues;
  schedule: Schedule;
  breaker: CircuitBreaker;
  log: Log;
  perConnection: number;
  filters: FilterDefaults;
  horizon: Horizon;
}) {
  const { store, queues, schedule, log } = options;
  const stopping = new AbortController();
  let wake = () => {};
  let woken = false;
  /** Whether all connections are to be looked at; or those alone in which a slot became free. */
  let all = true;
  const freed = new Set<string>();
  let batching: NodeJS.Timeout | undefined;
  // By a clock that nobody sets.
  let lastAll = Number.NEGATIVE_INFINITY;
  let lastSweep = Number.NEGATIVE_INFINITY;
  let nextAligned = Number.NEGATIVE_INFINITY;
  /** Connections of which somebody has told that something changed. */
  const changed = new Set<string>();
  let failing = false;

  async function sweep(): Promise<void> {
    await store.counts.fold();
    const lost = await store.assets.overdue(staleMs);
    await queues.addAssets(lost);
    for (const connectionId of await store.syncs.unattended()) await queues.addSync(connectionId);
    let adopted = adoptedAtOnce;
    while (adopted === adoptedAtOnce && !stopping.signal.aborted) adopted = await store.restore.adopt(adoptedAtOnce);
    for (const connectionId of await store.filters.unsettled()) {
      await applyFilters({ store, log, ...options.filters }, connectionId, stopping.signal);
    }
  }

  async function dispatch(): Promise<void> {
    // Also while slots become free all the time: what fell due elsewhere, or later, is not told by anybody.
    if (performance.now() - lastAll >= tickMs) all = true;
    const only = all ? undefined : [...freed];
    if (all) lastAll = performance.now();
    all = false;
    freed.clear();
    if (only?.length === 0) return;
    const due = await store.assets.dispatch({ perConnection: options.perConnection, only });
    if (due) return queues.addAssets(due);
    // Another process is at it, and may be past these.
    all ||= only === undefined;
    for (const connectionId of only ?? []) freed.add(connectionId);
    batching ??= setTimeout(look, batchMs);
  }

  /** Makes schedules what the records say, and times what the clock allows. */
  async function align(): Promise<void> {
    const began = performance.now();
    nextAligned = began + alignMs;
    const corrected = await store.correctFuture(options.horizon);
    if (Object.keys(corrected).length > 0) log.warn(corrected, 'times too far in the future corrected');
    await schedule.align();
    nextAligned = Math.max(nextAligned, performance.now() + (performance.now() - began) / alignShare);
  }

  async function round(): Promise<void> {
    if (options.breaker.open === undefined) await dispatch();
    if (performance.now() - lastSweep > sweepMs) {
      lastSweep = performance.now();
      await sweep();
    }
    for (const connectionId of changed) {
      // First: what is told of it meanwhile is looked at once more.
      changed.delete(connectionId);
      await schedule.alignOne(connectionId).catch((error) => {
        changed.add(connectionId);
        throw error;
      });
    }
    if (performance.now() > nextAligned) await align();
  }

  const silence = store.onNotice(({ connectionId }) => {
    if (connectionId !== undefined) changed.add(connectionId);
    wakeUp();
  });

  const running = (async () => {
    while (!stopping.signal.aborted) {
      woken = false;
      try {
        await round();
        if (failing) log.info('records and queue answer again');
        failing = false;
      } catch (err) {
        if (!failing && !stopping.signal.aborted) log.error({ err }, 'records or queue do not answer; trying on');
        failing = true;
      }
      if (woken && !failing) continue;
      const pause = new AbortController();
      wake = () => pause.abort();
      await sleep(tickMs, undefined, { signal: AbortSignal.any([pause.signal, stopping.signal]) }).catch(() => {});
      wake = () => {};
    }
  })();

  function look(): void {
    clearTimeout(batching);
    batching = undefined;
    woken = true;
    wake();
  }
  function wakeUp(): void {
    all = true;
    look();
  }

  return {
    /** Something fell due. */
    wake: wakeUp,
    /** The clock of this host was set: times and schedules are looked through now. */
    clockSet(): void {
      nextAligned = Number.NEGATIVE_INFINITY;
      wakeUp();
    },
    /** A slot of a connection on the queue became free. */
    freed(connectionId: string): void {
      freed.add(connectionId);
      batching ??= setTimeout(look, batchMs);
    },
    async stop(): Promise<void> {
      silence();
      clearTimeout(batching);
      stopping.abort();
      await Promise.race([running, sleep(stopMs, undefined, { ref: false })]);
    },
  };
}
