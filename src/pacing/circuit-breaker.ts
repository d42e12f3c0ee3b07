import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf, StorageUnavailable } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import { within } from '../floor/within.ts';
import type { Storage } from '../storage/storage.ts';

/** A bucket that does not answer its check for this long is unavailable. */
const silentMs = 30_000;

export type CircuitBreaker = ReturnType<typeof createCircuitBreaker>;

/**
 * The circuit breaker of the bucket. While it is open, no asset is started, and all of them wait instead of failing.
 * It closes when the bucket passes its check again.
 */
export function createCircuitBreaker(options: {
  storage: Storage;
  log: Log;
  timings: Timings;
  onOpen: () => void;
  onClose: () => void;
}) {
  const { storage, log, timings } = options;
  const stopping = new AbortController();
  let reason: string | undefined;
  let checking: Promise<void> | undefined;
  // A breaker that opens again right after it closed stays open longer each time.
  let waitMs = timings.breakerCheck;
  let closedAt = Number.NEGATIVE_INFINITY;

  async function checkBucket(): Promise<void> {
    const isPassed = await within(
      silentMs,
      storage.check().then(() => true),
    );
    if (!isPassed) throw new StorageUnavailable(`${storage.name}: no answer within ${silentMs / 1000} s`);
  }

  async function probe(): Promise<void> {
    for (; reason !== undefined && !stopping.signal.aborted; waitMs = Math.min(waitMs * 2, 30_000)) {
      await sleep(waitMs, undefined, { signal: stopping.signal }).catch(() => {});
      if (stopping.signal.aborted) return;
      try {
        await checkBucket();
        if (stopping.signal.aborted) return;
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
    options.onOpen();
    void probe();
  }

  return {
    /** Why the breaker is open; undefined while it is closed. */
    get openReason(): string | undefined {
      return reason;
    },

    /** Opens unless the bucket passes its check. Call this when the bucket has refused an object. Returns why it is open. */
    async check(): Promise<string | undefined> {
      if (reason !== undefined) return reason;
      checking ??= checkBucket()
        .catch(open)
        .finally(() => {
          checking = undefined;
        });
      await checking;
      return reason;
    },

    stop(): void {
      stopping.abort();
    },
  };
}
