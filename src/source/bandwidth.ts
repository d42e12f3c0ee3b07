import { setTimeout as sleep } from 'node:timers/promises';

/** Called with what has just come; resolves when more may be read. */
export type Throttle = (bytes: number, signal: AbortSignal) => Promise<void> | undefined;

/** How far ahead of the rate a process may run for a moment. */
const slackMs = 100;
/** What was lost because this process was late, and not the source, may be made up for: so much of it. */
const makeUpMs = 500;
/** Who waits for long looks now and then whether the rate is another. */
const lookMs = 250;

/** Milliseconds, and how to wait for some of them; tests have their own. */
export interface Clock {
  now(): number;
  sleep(ms: number, signal: AbortSignal): Promise<unknown>;
}
const realClock: Clock = {
  now: () => performance.now(),
  sleep: (ms, signal) => sleep(ms, undefined, { signal }),
};

/**
 * Keeps all downloads of a process together at a rate that may be changed at any time: each chunk takes its place on one
 * line, which moves at the rate, and goes on when the line has come there. Without a limit nothing is done at all.
 */
export function createThrottle(limit: number | undefined, clock: Clock = realClock) {
  let rate = limit;
  /** Where the line ends and how far it has come, in bytes; and when that was. */
  let end = 0;
  let come = 0;
  let at = clock.now();
  let waiting = 0;
  let lastWaited = Number.NEGATIVE_INFINITY;

  function move(): void {
    const now = clock.now();
    if (rate !== undefined) {
      come += ((now - at) / 1000) * rate;
      // A pause is not saved up to be spent in a burst; but who waits, or did a moment ago, was woken late.
      if (waiting > 0) lastWaited = now;
      const madeUp = now - lastWaited <= slackMs ? makeUpMs : 0;
      come = Math.min(come, end + (madeUp / 1000) * rate);
    }
    at = now;
  }

  async function wait(place: number, signal: AbortSignal): Promise<void> {
    waiting++;
    try {
      while (rate !== undefined) {
        move();
        const ahead = ((place - come) / rate) * 1000 - slackMs;
        if (ahead <= 0) return;
        await clock.sleep(Math.ceil(Math.min(ahead, lookMs)), signal);
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
      return end - come > (slackMs / 1000) * rate ? wait(end, signal) : undefined;
    },
    /** For whoever waits now, too. */
    setLimit(bytesPerSecond: number | undefined): void {
      if (bytesPerSecond === rate) return;
      move();
      // What went through without a limit was on no line.
      if (rate === undefined) come = end;
      rate = bytesPerSecond;
    },
    get limit(): number | undefined {
      return rate;
    },
  };
}

const windowSeconds = 5;

/** All downloads of a process: kept below `limit` together, and counted. */
export function createTraffic(limit: number | undefined) {
  const throttle = createThrottle(limit);
  /** What came in each of the last seconds; the one that is running is beside them. */
  const seconds = new Array<number>(windowSeconds + 1).fill(0);
  let last = Math.floor(performance.now() / 1000);
  const running = () => {
    const now = Math.floor(performance.now() / 1000);
    for (; last < now; last++) {
      // After a pause all of them are empty.
      if (now - last > seconds.length) last = now - seconds.length;
      seconds[(last + 1) % seconds.length] = 0;
    }
    return now % seconds.length;
  };
  const take: Throttle = (bytes, signal) => {
    const now = running();
    seconds[now] = seconds[now]! + bytes;
    return throttle.take(bytes, signal);
  };
  return {
    take,
    setLimit: throttle.setLimit,
    /** Bytes per second; undefined: none. */
    get limit(): number | undefined {
      return throttle.limit;
    },
    /** The mean of the last few seconds. */
    bytesPerSecond(): number {
      const now = running();
      return seconds.reduce((sum, bytes, i) => (i === now ? sum : sum + bytes), 0) / windowSeconds;
    },
  };
}

export type Lines = ReturnType<typeof createLines>;

/** The downloads of each connection for itself, where that has a limit; below that of the process, which is another's. */
export function createLines(clock: Clock = realClock) {
  const lines = new Map<string, ReturnType<typeof createThrottle>>();
  return {
    /** What downloads of a connection keep to, now and when that changes. */
    of(connectionId: string): Throttle {
      return (bytes, signal) => lines.get(connectionId)?.take(bytes, signal);
    },
    /** Bytes per second by connection; those that are not named have no limit. */
    setLimits(limits: ReadonlyMap<string, number>): void {
      for (const [connectionId, line] of lines) {
        if (limits.has(connectionId)) continue;
        // Whoever waits goes on.
        line.setLimit(undefined);
        lines.delete(connectionId);
      }
      for (const [connectionId, limit] of limits) {
        const line = lines.get(connectionId);
        if (line) line.setLimit(limit);
        else lines.set(connectionId, createThrottle(limit, clock));
      }
    },
    limitOf: (connectionId: string): number | undefined => lines.get(connectionId)?.limit,
  };
}
