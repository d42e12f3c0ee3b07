import { isDeepStrictEqual } from 'node:util';
import { RetryLater, reasonOf, withMargin } from '../errors.ts';
import type { Log } from '../log.ts';
import { HttpError, passing } from '../source/http.ts';
import type { Store } from '../store/store.ts';
import { formatDuration } from '../units.ts';
import {
  type AdaptiveLimit,
  answered,
  answersPerStep,
  faster,
  fullSpeed,
  limitOf,
  slower,
} from './concurrency-limit.ts';

export type Limiter = ReturnType<typeof createLimiter>;

/** In the reason of a pause that nobody asked for: the service did not answer, or with errors only. */
export const askedAgain = 'it is asked again in';

/** The most of a connection that may be under way at once. */
export function ceilingOf(settings: Record<string, unknown>, perConnection: number): number {
  return typeof settings.concurrency === 'number' ? settings.concurrency : perConnection;
}

/**
 * Makes connections slower and faster by what the service answers to them, each for itself. AdaptiveLimit and pauses are in the
 * connection's row: all processes keep to them, and a restart changes nothing.
 */
export function createLimiter(options: { store: Store; log: Log; perConnection: number }) {
  const { log, perConnection } = options;
  const { connections } = options.store;
  /** Answers since the last step, by connection. */
  const answers = new Map<string, number>();
  /** Connections whose last news here was trouble. */
  const troubled = new Set<string>();

  /** Who comes second changes nothing: whoever was first has seen the same. */
  async function change<T extends { adaptiveLimit: AdaptiveLimit }>(
    connectionId: string,
    next: (adaptiveLimit: AdaptiveLimit, ceiling: number) => T | undefined,
  ): Promise<(T & { ceiling: number }) | undefined> {
    const connection = await connections.get(connectionId);
    if (!connection) return undefined;
    const before = connection.adaptiveLimit ?? fullSpeed;
    const ceiling = ceilingOf(connection.settings, perConnection);
    const after = next(before, ceiling);
    if (!after || isDeepStrictEqual(after.adaptiveLimit, before)) return undefined;
    const changed = await connections.setAdaptiveLimit(connectionId, connection.adaptiveLimit, after.adaptiveLimit);
    return changed ? { ...after, ceiling } : undefined;
  }

  /** Nobody asks the service anything for this connection for so long. */
  async function park(connectionId: string, waitMs: number, reason: string): Promise<void> {
    const longer = await connections.park(connectionId, waitMs, reason);
    if (longer) log.warn({ connectionId, retryInMs: Math.round(waitMs), reason }, 'connection parked');
  }

  async function slowDown(connectionId: string, error: unknown): Promise<void> {
    answers.delete(connectionId);
    troubled.add(connectionId);
    const now = await options.store.now();
    const slowed = await change(connectionId, (adaptiveLimit, ceiling) => slower(adaptiveLimit, ceiling, now));
    if (!slowed) return;
    const reason = reasonOf(error);
    const limit = limitOf(slowed.adaptiveLimit, slowed.ceiling);
    log.warn({ connectionId, limit, ceiling: slowed.ceiling, reason }, 'connection slowed down');
    if (slowed.pauseMs > 0) {
      await park(
        connectionId,
        withMargin(slowed.pauseMs),
        `${reason}; ${askedAgain} ${formatDuration(slowed.pauseMs)}`,
      );
    }
  }

  async function speedUp(connectionId: string): Promise<void> {
    const count = (answers.get(connectionId) ?? 0) + 1;
    const step = count >= answersPerStep;
    answers.set(connectionId, step ? 0 : count);
    if (!troubled.delete(connectionId) && !step) return;
    const changed = await change(connectionId, (adaptiveLimit, ceiling) => ({
      adaptiveLimit: step ? faster(adaptiveLimit, ceiling) : answered(adaptiveLimit),
    }));
    if (changed && step) {
      log.info(
        { connectionId, limit: limitOf(changed.adaptiveLimit, changed.ceiling), ceiling: changed.ceiling },
        'connection sped up',
      );
    }
  }

  /** What cannot be kept now is kept another time; the call that it is about is not to fail for it. */
  const kept = (work: Promise<void>, connectionId: string) =>
    work.catch((err) => log.debug({ connectionId, err }, 'the adaptiveLimit could not be kept'));

  /** The service asked for patience, or did not answer: takes that to heart before anybody asks again. */
  async function met(connectionId: string, error: unknown): Promise<void> {
    if (error instanceof RetryLater) {
      if (error.scope !== 'connection') return;
      await kept(park(connectionId, error.waitMs, reasonOf(error)), connectionId);
      if (error.asked) await kept(slowDown(connectionId, error), connectionId);
    } else if (passing(error)) {
      await kept(slowDown(connectionId, error), connectionId);
    } else if (error instanceof HttpError) {
      await kept(speedUp(connectionId), connectionId);
    }
  }

  return {
    met,

    /** A call of the API, which says something of how the service is. */
    async watch<T>(connectionId: string, call: () => Promise<T>): Promise<T> {
      try {
        const answer = await call();
        await kept(speedUp(connectionId), connectionId);
        return answer;
      } catch (error) {
        await met(connectionId, error);
        throw error;
      }
    },
  };
}
