import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '../floor/errors.ts';
import type { Timings } from '../floor/timings.ts';
import { answerWithin } from '../floor/within.ts';

export type CircuitBreaker = ReturnType<typeof createCircuitBreaker>;

/** A check that takes longer than this has failed. */
const silentMs = 30_000;

/**
 * A circuit breaker around something that this process needs for its work, such as the bucket. It opens when the check fails, and
 * closes when the check passes again.
 */
export function createCircuitBreaker(options: {
  check: () => Promise<void>;
  timings: Pick<Timings, 'breakerCheck'>;
  onOpen: (error: unknown) => void;
  onClose: () => void;
}) {
  const { timings } = options;
  const stopping = new AbortController();
  const stopped = new Promise<void>((resolve) => {
    stopping.signal.addEventListener('abort', () => resolve());
  });
  let reason: string | undefined;
  let checking: Promise<void> | undefined;
  // A breaker that opens again right after it closed stays open longer each time.
  let waitMs = timings.breakerCheck;
  let closedAt = Number.NEGATIVE_INFINITY;

  const checkInTime = () => answerWithin(silentMs, () => options.check());

  async function probe(): Promise<void> {
    for (; reason !== undefined && !stopping.signal.aborted; waitMs = Math.min(waitMs * 2, 30_000)) {
      await sleep(waitMs, undefined, { signal: stopping.signal }).catch(() => {});
      if (stopping.signal.aborted) return;
      try {
        await checkInTime();
        if (stopping.signal.aborted) return;
        reason = undefined;
        closedAt = performance.now();
        options.onClose();
      } catch (error) {
        reason = reasonOf(error);
      }
    }
  }

  function open(error: unknown): void {
    if (stopping.signal.aborted) return;
    if (performance.now() - closedAt > 120_000) waitMs = timings.breakerCheck;
    reason = reasonOf(error);
    options.onOpen(error);
    void probe();
  }

  return {
    /** Why the breaker is open; undefined while it is closed. */
    get openReason(): string | undefined {
      return reason;
    },

    /** Opens unless the check passes. Call this after an error that may affect all work. Returns why the breaker is open. */
    async check(): Promise<string | undefined> {
      if (reason !== undefined) return reason;
      checking ??= checkInTime()
        .catch(open)
        .finally(() => {
          checking = undefined;
        });
      await Promise.race([checking, stopped]);
      return reason;
    },

    stop(): void {
      stopping.abort();
    },
  };
}
