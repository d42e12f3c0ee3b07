import { isDeepStrictEqual } from 'node:util';
import { RetryLater, reasonOf, toReason, withMargin } from '../errors.ts';
import type { Log } from '../log.ts';
import { type Reason, renderReason } from '../reasons.ts';
import { HttpError, isTemporary } from '../source/http.ts';
import type { Store } from '../store/store.ts';
import {
  type AdaptiveLimit,
  answered,
  answersPerStep,
  faster,
  fullSpeed,
  limitOf,
  slower,
} from './concurrency-limit.ts';

/** The maximum of assets in flight for a connection. */
export function ceilingOf(settings: Record<string, unknown>, perConnection: number): number {
  return typeof settings.concurrency === 'number' ? settings.concurrency : perConnection;
}

/**
 * Adapts the concurrency of each connection to the answers of the library. Limits and pauses are in the connection's row:
 * all processes follow them, and a restart changes nothing.
 */
export class Limiter {
  readonly #options: { store: Store; log: Log; perConnection: number };
  /** Answers since the last step, by connection. */
  readonly #answers = new Map<string, number>();
  /** Connections whose last request from this process failed. */
  readonly #troubled = new Set<string>();

  constructor(options: { store: Store; log: Log; perConnection: number }) {
    this.#options = options;
  }

  /** Makes a request to the API, and adapts the limit to how it ends. */
  async watch<T>(connectionId: string, call: () => Promise<T>): Promise<T> {
    try {
      const answer = await call();
      await this.#tolerant(connectionId, this.#speedUp(connectionId));
      return answer;
    } catch (error) {
      await this.adaptTo(connectionId, error);
      throw error;
    }
  }

  /** Adapts the limit to an error, and keeps the pause that the library asked for. */
  async adaptTo(connectionId: string, error: unknown): Promise<void> {
    if (error instanceof RetryLater) {
      if (error.scope !== 'connection') return;
      await this.#tolerant(connectionId, this.#pause(connectionId, error.waitMs, toReason(error)));
      if (error.code === 'asked_to_wait') await this.#tolerant(connectionId, this.#slowDown(connectionId, error));
    } else if (isTemporary(error)) {
      await this.#tolerant(connectionId, this.#slowDown(connectionId, error));
    } else if (error instanceof HttpError) {
      await this.#tolerant(connectionId, this.#speedUp(connectionId));
    }
  }

  async #slowDown(connectionId: string, error: unknown): Promise<void> {
    const { store, log } = this.#options;
    this.#answers.delete(connectionId);
    this.#troubled.add(connectionId);
    const now = await store.now();
    const slowed = await this.#change(connectionId, (adaptiveLimit, ceiling) => slower(adaptiveLimit, ceiling, now));
    if (!slowed) return;
    const { limit, ceiling, pauseMs } = slowed;
    log.warn(
      { event: 'connection.slowed_down', connectionId, limit, ceiling, reason: reasonOf(error) },
      'connection slowed down',
    );
    if (pauseMs === 0) return;
    const reason: Reason = { code: 'library_unavailable', error: reasonOf(error), retryInMs: pauseMs };
    await this.#pause(connectionId, withMargin(pauseMs), reason);
  }

  async #speedUp(connectionId: string): Promise<void> {
    const count = (this.#answers.get(connectionId) ?? 0) + 1;
    const step = count >= answersPerStep;
    this.#answers.set(connectionId, step ? 0 : count);
    if (!this.#troubled.delete(connectionId) && !step) return;
    const changed = await this.#change(connectionId, (adaptiveLimit, ceiling) => ({
      adaptiveLimit: step ? faster(adaptiveLimit, ceiling) : answered(adaptiveLimit),
    }));
    if (!changed || !step) return;
    const { limit, ceiling } = changed;
    this.#options.log.info({ event: 'connection.sped_up', connectionId, limit, ceiling }, 'connection sped up');
  }

  /** Undefined if nothing changes, or if another process has just changed it for the same reason. */
  async #change<T extends { adaptiveLimit: AdaptiveLimit }>(
    connectionId: string,
    next: (adaptiveLimit: AdaptiveLimit, ceiling: number) => T | undefined,
  ): Promise<(T & { limit: number; ceiling: number }) | undefined> {
    const { connections } = this.#options.store;
    const connection = await connections.get(connectionId);
    if (!connection) return undefined;
    const before = connection.adaptiveLimit ?? fullSpeed;
    const ceiling = ceilingOf(connection.settings, this.#options.perConnection);
    const after = next(before, ceiling);
    if (!after || isDeepStrictEqual(after.adaptiveLimit, before)) return undefined;
    const changed = await connections.setAdaptiveLimit(connectionId, connection.adaptiveLimit, after.adaptiveLimit);
    return changed ? { ...after, limit: limitOf(after.adaptiveLimit, ceiling), ceiling } : undefined;
  }

  /** For `waitMs`, no process sends requests for this connection. */
  async #pause(connectionId: string, waitMs: number, reason: Reason): Promise<void> {
    const { store, log } = this.#options;
    const longer = await store.connections.delay(connectionId, waitMs, reason);
    const retryInMs = Math.round(waitMs);
    const fields = { connectionId, retryInMs, reason: renderReason(reason), reasonCode: reason.code };
    if (longer) log.warn({ event: 'connection.delayed', ...fields }, 'connection delayed');
  }

  /** A limit that cannot be saved now is saved another time: the request must not fail because of it. */
  #tolerant(connectionId: string, work: Promise<void>): Promise<void> {
    return work.catch((err) =>
      this.#options.log.debug({ event: 'connection.limit_save_failed', connectionId, err }, 'adaptive limit not saved'),
    );
  }
}
