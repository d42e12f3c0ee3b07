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
