import { setTimeout as sleep } from 'node:timers/promises';

/** Called with what has just come; resolves when more may be read. */
export type Throttle = (bytes: number, signal: AbortSignal) => Promise<void> | undefined;

/** How far ahead of the rate a process may run for a moment. */
const slackMs = 100;

/**
 * Keeps all downloads of a process together at `bytesPerSecond`: each chunk takes its time on one line, and who is ahead of
 * the line's clock waits. Without a limit nothing is done at all.
 */
export function createThrottle(bytesPerSecond: number | undefined): Throttle {
  if (bytesPerSecond === undefined) return () => undefined;
  let free = 0;
  return (bytes, signal) => {
    const now = performance.now();
    free = Math.max(free, now) + (bytes / bytesPerSecond) * 1000;
    const ahead = free - now - slackMs;
    return ahead > 0 ? sleep(ahead, undefined, { signal }) : undefined;
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
    return throttle(bytes, signal);
  };
  return {
    take,
    /** The mean of the last few seconds. */
    bytesPerSecond(): number {
      const now = running();
      return seconds.reduce((sum, bytes, i) => (i === now ? sum : sum + bytes), 0) / windowSeconds;
    },
  };
}
