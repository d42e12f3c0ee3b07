import type { Log } from './log.ts';

/** The clocks of hosts differ by less than this; a smaller step of a clock is harmless. */
export const clockToleranceMs = 60_000;

const tickMs = 1000;

/** Compares the wall clock with the monotonic one; logs a step of the wall clock, and calls `onStep`. Returns how to stop. */
export function watchClock(log: Log, onStep: () => void): () => void {
  const offsetNow = () => Date.now() - performance.now();
  let offset = offsetNow();
  const timer = setInterval(() => {
    const ms = Math.round(offsetNow() - offset);
    if (Math.abs(ms) < clockToleranceMs) return;
    offset += ms;
    log.warn({ ms }, ms < 0 ? 'the clock was set back' : 'the clock was set forward, or the machine slept');
    onStep();
  }, tickMs).unref();
  return () => clearInterval(timer);
}
