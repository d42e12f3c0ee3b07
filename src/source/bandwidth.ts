import { setTimeout as sleep } from 'node:timers/promises';

/** Called with the number of bytes that arrived; resolves when more may be read. */
export type Throttle = (bytes: number, signal: AbortSignal) => Promise<void> | undefined;

/** How far downloads may run ahead of the rate. */
const slackMs = 100;
/** How much time this process may catch up if it was late itself. */
const makeUpMs = 500;
/** A waiting download checks this often whether the rate has changed. */
const pollMs = 250;

/** Time in milliseconds; tests have their own clock. */
export interface Clock {
  now(): number;
  sleep(ms: number, signal: AbortSignal): Promise<unknown>;
}
const realClock: Clock = {
  now: () => performance.now(),
  sleep: (ms, signal) => sleep(ms, undefined, { signal }),
};

/**
 * Limits the rate of all downloads together; the limit may change at any time. Each chunk gets a position in one queue, which
 * advances at the rate. It is delivered when the queue reaches that position. Without a limit, chunks never wait.
 */
export function createThrottle(limit: number | undefined, clock: Clock = realClock) {
  let rate = limit;
  /** The end of the queue, and the position that it had reached at the time `at`, in bytes. */
  let end = 0;
  let reached = 0;
  let at = clock.now();
  let waiting = 0;
  let lastWaited = Number.NEGATIVE_INFINITY;

  function move(): void {
    const now = clock.now();
    if (rate !== undefined) {
      reached += ((now - at) / 1000) * rate;
      // A pause is not saved up for a burst. But a download that waits, or just did, may have been woken late.
      if (waiting > 0) lastWaited = now;
      const madeUp = now - lastWaited <= slackMs ? makeUpMs : 0;
      reached = Math.min(reached, end + (madeUp / 1000) * rate);
    }
    at = now;
  }

  async function wait(position: number, signal: AbortSignal): Promise<void> {
    waiting++;
    try {
      while (rate !== undefined) {
        move();
        const ahead = ((position - reached) / rate) * 1000 - slackMs;
        if (ahead <= 0) return;
        await clock.sleep(Math.ceil(Math.min(ahead, pollMs)), signal);
      }
    } finally {
      waiting--;
    }
  }

  return {
    take(bytes: number, signal: AbortSignal): Promise<void> | undefined {
      if (rate === undefined) return undefined;
      move();
      end += bytes;
      return end - reached > (slackMs / 1000) * rate ? wait(end, signal) : undefined;
    },
    /** Also applies to downloads that wait now. */
    setLimit(bytesPerSecond: number | undefined): void {
      if (bytesPerSecond === rate) return;
      move();
      // Chunks that passed without a limit took no position.
      if (rate === undefined) reached = end;
      rate = bytesPerSecond;
    },
    get limit(): number | undefined {
      return rate;
    },
  };
}

const windowSeconds = 5;

/** Limits and measures all downloads of a process together. `limit`: bytes per second, or null. `count` is called with all bytes. */
export function createTraffic(limit: number | null, count?: (bytes: number) => void) {
  const throttle = createThrottle(limit ?? undefined);
  /** Bytes in each of the last seconds, and in the current one. */
  const seconds = new Map<number, number>();
  const running = () => {
    const now = Math.floor(performance.now() / 1000);
    for (const second of seconds.keys()) if (second < now - windowSeconds) seconds.delete(second);
    return now;
  };
  const take: Throttle = (bytes, signal) => {
    const now = running();
    seconds.set(now, (seconds.get(now) ?? 0) + bytes);
    count?.(bytes);
    return throttle.take(bytes, signal);
  };
  return {
    take,
    setLimit: throttle.setLimit,
    /** Bytes per second; undefined: no limit. */
    get limit(): number | undefined {
      return throttle.limit;
    },
    /** The mean of the last full seconds. */
    bytesPerSecond(): number {
      const now = running();
      return [...seconds].reduce((sum, [second, bytes]) => (second === now ? sum : sum + bytes), 0) / windowSeconds;
    },
  };
}

export type ConnectionThrottles = ReturnType<typeof createConnectionThrottles>;

/** The limits of single connections, in addition to that of the process. */
export function createConnectionThrottles(clock: Clock = realClock) {
  const throttles = new Map<string, ReturnType<typeof createThrottle>>();
  return {
    /** The throttle of a connection's downloads; follows later changes of its limit. */
    of(connectionId: string): Throttle {
      return (bytes, signal) => throttles.get(connectionId)?.take(bytes, signal);
    },
    /** Bytes per second by connection; all others have no limit. */
    setLimits(limits: ReadonlyMap<string, number>): void {
      for (const [connectionId, throttle] of throttles) {
        if (limits.has(connectionId)) continue;
        // Downloads that wait continue.
        throttle.setLimit(undefined);
        throttles.delete(connectionId);
      }
      for (const [connectionId, limit] of limits) {
        const throttle = throttles.get(connectionId);
        if (throttle) throttle.setLimit(limit);
        else throttles.set(connectionId, createThrottle(limit, clock));
      }
    },
    limitOf: (connectionId: string): number | undefined => throttles.get(connectionId)?.limit,
  };
}
