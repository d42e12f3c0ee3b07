import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { RetryLater, reasonOf, toReason, withMargin } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import { neverSent } from '../floor/network-problem.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { reasonFields } from '../floor/reasons.ts';
import { HttpError, isTemporary } from '../source/http.ts';
import type { Store } from '../store/store.ts';
import { type AdaptiveLimit, type Concurrency, faster, limitOf, slower } from './concurrency-limit.ts';
import { RequestRate } from './request-rate.ts';
import { type Period, ResponseTimes } from './response-times.ts';

/** Connections whose answers one process remembers. */
const mostSeen = 1000;
/** If requests wait longer than this, the connection has too many assets in flight. */
export const longWaitMs = 5000;

/** The maximum of assets in flight for a connection. */
export function ceilingOf(settings: Record<string, unknown>, perConnection: number): number {
  return typeof settings.concurrency === 'number' ? settings.concurrency : perConnection;
}

/** The answers take too long. Undefined: the limit is the lowest already. */
const lower = (at: Concurrency) => (at.limit > 1 ? slower(at, 'latency') : undefined);

/** What this process has seen of a connection. */
interface Seen {
  times: ResponseTimes;
  rate: RequestRate;
  /** The last request of the connection succeeded. Otherwise it may have strikes, also from before a restart. */
  succeeded: boolean;
}

/**
 * Adapts the concurrency of each connection to the answers of the library. Limits and pauses are in the connection's row:
 * all processes follow them, and a restart changes nothing.
 */
export class Limiter {
  readonly #options: { store: Store; log: Log; perConnection: number };
  /** The latest answers to this process, by connection; those least recently used are forgotten. */
  readonly #seen = new Map<string, Seen>();
  /** Requests to wait that it has adapted to. */
  readonly #adaptedTo = new WeakSet<RetryLater>();
  readonly #stopping = new AbortController();
  #afterPause = () => {};

  constructor(options: { store: Store; log: Log; perConnection: number }) {
    this.#options = options;
  }

  /**
   * Waits until the library is likely to answer one more request. Returns the wait in ms. Long waits lower the limit: slots are
   * for assets that make progress.
   * @throws RetryLater if the process stops
   */
  async waitForRate(connectionId: string): Promise<number> {
    const began = performance.now();
    const reserve = () => this.#stateOf(connectionId).rate.reserve(performance.now(), longWaitMs);
    let waitMs = reserve();
    while (waitMs === Number.POSITIVE_INFINITY) {
      const reason = 'the library allows few requests';
      await this.#tolerant(connectionId, this.#change(connectionId, reason, lower));
      await this.#sleep(longWaitMs * (0.5 + Math.random() / 2));
      waitMs = reserve();
    }
    if (waitMs > 0) await this.#sleep(waitMs);
    return performance.now() - began;
  }

  async #sleep(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#stopping.signal }).catch(() => {
      throw new RetryLater({ code: 'shutting_down' }, 0);
    });
  }

  /** `work` is called when a pause that began in this process ends. */
  afterPause(work: () => void): void {
    this.#afterPause = work;
  }

  /** Ends all waits. */
  stop(): void {
    this.#stopping.abort();
  }

  /**
   * Makes a request to the API, and adapts limit and rate to how it ends. `waitedMs`: its wait before; undefined: how long it takes
   * does not count, because only requests of one kind can be compared.
   */
  async watch<T>(connectionId: string, waitedMs: number | undefined, call: () => Promise<T>): Promise<T> {
    const began = performance.now();
    try {
      const answer = await call();
      const now = performance.now();
      const { times, rate } = this.#stateOf(connectionId);
      rate.answered(now);
      const period = waitedMs === undefined ? undefined : times.add({ waitedMs, answerMs: now - began }, now);
      await this.#tolerant(connectionId, this.#endStrikes(connectionId));
      if (period) await this.#tolerant(connectionId, this.#judge(connectionId, period));
      return answer;
    } catch (error) {
      // A 404 is an answer, too.
      if (error instanceof HttpError && !isTemporary(error))
        this.#stateOf(connectionId).rate.answered(performance.now());
      // Perhaps only this process cannot reach the library. The caller checks that first (see workers.ts).
      if (!neverSent(error)) await this.adaptTo(connectionId, error);
      throw error;
    }
  }

  /** Adapts limit or rate to an error, and keeps the pause that the library asked for. */
  async adaptTo(connectionId: string, error: unknown): Promise<void> {
    if (error instanceof RetryLater) {
      // The error of a request also reaches the job that made it, and all that it stops.
      if (error.scope !== 'connection' || this.#adaptedTo.has(error)) return;
      this.#adaptedTo.add(error);
      await this.#tolerant(connectionId, this.#pause(connectionId, error.waitMs, toReason(error)));
      if (error.reason.code === 'asked_to_wait') this.#lowerRate(connectionId);
    } else if (isTemporary(error)) {
      await this.#tolerant(connectionId, this.#slowDown(connectionId, error));
    } else if (error instanceof HttpError) {
      await this.#tolerant(connectionId, this.#endStrikes(connectionId));
    }
  }

  #lowerRate(connectionId: string): void {
    const now = performance.now();
    this.#stateOf(connectionId).rate.refused(now);
    RequestRate.share(
      [...this.#seen.values()].map(({ rate }) => rate),
      now,
    );
  }

  async #slowDown(connectionId: string, error: unknown): Promise<void> {
    this.#stateOf(connectionId).succeeded = false;
    const reason = reasonOf(error);
    const slowed = await this.#change(connectionId, reason, (at) => slower(at, 'failure'));
    if (!slowed?.pauseMs) return;
    const { pauseMs } = slowed;
    const pausedFor: Reason = { code: 'library_unavailable', error: reason, retryInMs: pauseMs };
    await this.#pause(connectionId, withMargin(pauseMs), pausedFor);
  }

  async #judge(connectionId: string, period: Period): Promise<void> {
    const { times } = this.#stateOf(connectionId);
    await this.#change(connectionId, 'its answers take longer than before', (at) => {
      const verdict = times.judge(period, at.limit);
      if (verdict === 'slower') return lower(at);
      return verdict === 'faster' && at.queued >= at.limit ? { adaptiveLimit: faster(at) } : undefined;
    });
  }

  async #endStrikes(connectionId: string): Promise<void> {
    const state = this.#stateOf(connectionId);
    if (state.succeeded) return;
    state.succeeded = true;
    const noStrikes = ({ adaptiveLimit }: Concurrency) => ({ adaptiveLimit: { ...adaptiveLimit, strikes: 0 } });
    await this.#change(connectionId, '', noStrikes).catch((error) => {
      state.succeeded = false;
      throw error;
    });
  }

  #stateOf(connectionId: string) {
    const untried = () => ({ times: new ResponseTimes(), rate: new RequestRate(), succeeded: false });
    const seen = this.#seen.get(connectionId) ?? untried();
    this.#seen.delete(connectionId);
    this.#seen.set(connectionId, seen);
    if (this.#seen.size > mostSeen) this.#seen.delete(this.#seen.keys().next().value!);
    return seen;
  }

  /** Undefined if nothing changes, or if another process changed the limit meanwhile. `reason`: for a lower limit. */
  async #change<T extends { adaptiveLimit: AdaptiveLimit }>(
    connectionId: string,
    reason: string,
    next: (at: Concurrency) => T | undefined,
  ): Promise<T | undefined> {
    const { store, log, perConnection } = this.#options;
    const found = await store.connections.concurrency(connectionId);
    if (!found) return undefined;
    const { adaptiveLimit, queued, now } = found;
    const ceiling = ceilingOf(found.settings, perConnection);
    const limit = limitOf(adaptiveLimit, ceiling);
    const after = next({ adaptiveLimit, ceiling, limit, queued, now });
    if (!after || isDeepStrictEqual(after.adaptiveLimit, adaptiveLimit)) return undefined;
    if (!(await store.connections.setAdaptiveLimit(connectionId, adaptiveLimit, after.adaptiveLimit))) return undefined;
    this.#stateOf(connectionId).times.restart(performance.now());
    const fields = { connectionId, limit: limitOf(after.adaptiveLimit, ceiling), ceiling };
    if (fields.limit < limit) {
      log.info({ event: 'connection.slowed_down', ...fields, reason }, 'connection slowed down');
    } else if (fields.limit > limit) {
      log.debug({ event: 'connection.sped_up', ...fields }, 'connection sped up');
    }
    return after;
  }

  /** For `waitMs`, no process sends requests for this connection. */
  async #pause(connectionId: string, waitMs: number, reason: Reason): Promise<void> {
    const { store, log } = this.#options;
    const longer = await store.connections.delay(connectionId, waitMs, reason);
    const retryInMs = Math.round(waitMs);
    const fields = { connectionId, retryInMs, ...reasonFields(reason) };
    if (!longer) return;
    log.warn({ event: 'connection.delayed', ...fields }, 'connection delayed');
    setTimeout(() => this.#afterPause(), waitMs + 10).unref();
  }

  /** An error here is only logged: the request must not fail because of it. */
  async #tolerant(connectionId: string, work: Promise<unknown>): Promise<void> {
    await work.catch((err) =>
      this.#options.log.debug({ event: 'connection.limit_save_failed', connectionId, err }, 'adaptive limit not saved'),
    );
  }
}
