import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Storage } from '../storage/storage.ts';

export type Gate = ReturnType<typeof createGate>;

/**
 * The circuit breaker of the bucket. While it is closed no asset is started, and all of them wait instead of failing.
 * It opens when the bucket passes its check again.
 */
export function createGate(options: { storage: Storage; log: Log; onOpen: () => void }) {
  const { storage, log } = options;
  const stopping = new AbortController();
  let reason: string | undefined;
  let probing: Promise<void> | undefined;
  let looking: Promise<void> | undefined;
  // A gate that closes again right away opens later each time.
  let wait = 2000;
  let opened = Number.NEGATIVE_INFINITY;

  async function probe(): Promise<void> {
    for (; reason !== undefined && !stopping.signal.aborted; wait = Math.min(wait * 2, 30_000)) {
      await sleep(wait, undefined, { signal: stopping.signal }).catch(() => {});
      if (stopping.signal.aborted) return;
      try {
        await storage.check();
        reason = undefined;
        opened = performance.now();
        log.info({ storage: storage.name }, 'the bucket takes objects again');
        options.onOpen();
      } catch (error) {
        reason = reasonOf(error);
      }
    }
  }

  function close(error: unknown): void {
    log.error({ storage: storage.name, err: error }, 'the bucket takes nothing; everything waits');
    if (performance.now() - opened > 120_000) wait = 2000;
    reason = reasonOf(error);
    probing = probe();
  }

  return {
    /** Why nothing is sent at present; undefined: everything is well. */
    get closed(): string | undefined {
      return reason;
    },

    /** The bucket has refused something: closes unless it takes other things. */
    async look(): Promise<void> {
      if (reason !== undefined) return;
      looking ??= storage
        .check()
        .catch(close)
        .finally(() => {
          looking = undefined;
        });
      await looking;
    },

    async stop(): Promise<void> {
      stopping.abort();
      await probing;
    },
  };
}
