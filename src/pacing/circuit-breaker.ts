import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import type { Storage } from '../storage/storage.ts';

export type CircuitBreaker = ReturnType<typeof createCircuitBreaker>;

/**
 * The circuit breaker of the bucket. While it is open, no asset is started, and all of them wait instead of failing.
 * It closes when the bucket passes its check again.
 */
export function createCircuitBreaker(options: { storage: Storage; log: Log; timings: Timings; onClose: () => void }) {
  const { storage, log, timings } = options;
  const stopping = new AbortController();
  let reason: string | undefined;
  let probing: Promise<void> | undefined;
  let checking: Promise<void> | undefined;
  // A breaker that opens again right after it closed stays open longer each time.
  let waitMs = timings.breakerCheck;
  let closedAt = Number.NEGATIVE_INFINITY;

  async function probe(): Promise<void> {
    for (; reason !== undefined && !stopping.signal.aborted; waitMs = Math.min(waitMs * 2, 30_000)) {
      await sleep(waitMs, undefined, { signal: stopping.signal }).catch(() => {});
      if (stopping.signal.aborted) return;
      try {
        await storage.check();
        reason = undefined;
        closedAt = performance.now();
        log.info({ event: 'bucket.recovered', storage: storage.name }, 'bucket available again');
        options.onClose();
      } catch (error) {
        reason = reasonOf(error);
      }
    }
  }

  function open(error: unknown): void {
    log.error({ event: 'bucket.failed', storage: storage.name, err: error }, 'bucket unavailable, all assets wait');
    if (performance.now() - closedAt > 120_000) waitMs = timings.breakerCheck;
    reason = reasonOf(error);
    probing = probe();
  }

  return {
    /** Why the breaker is open; undefined while it is closed. */
    get openReason(): string | undefined {
      return reason;
    },

    /** Opens unless the bucket passes its check. Call this when the bucket has refused an object. Returns why it is open. */
    async check(): Promise<string | undefined> {
      if (reason !== undefined) return reason;
      checking ??= storage
        .check()
        .catch(open)
        .finally(() => {
          checking = undefined;
        });
      await checking;
      return reason;
    },

    async stop(): Promise<void> {
      stopping.abort();
      await probing;
    },
  };
}
