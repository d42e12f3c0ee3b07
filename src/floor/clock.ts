import type { Log } from './log.ts';

/** Clocks of hosts differ by less than this. A smaller step of a clock is harmless. */
export const clockToleranceMs = 60_000;

const tickMs = 1000;

/** Logs each step of the wall clock against the monotonic clock, and calls `onStep`. Returns a function that stops it. */
export function watchClock(log: Log, onStep: () => void): () => void {
  const offsetNow = () => Date.now() - performance.now();
  let offset = offsetNow();
  const timer = setInterval(() => {
    const ms = Math.round(offsetNow() - offset);
    if (Math.abs(ms) < clockToleranceMs) return;
    offset += ms;
    if (ms < 0) log.warn({ event: 'clock.set_back', ms }, 'the clock was set back');
    else log.warn({ event: 'clock.set_forward', ms }, 'the clock was set forward, or the machine slept');
    onStep();
  }, tickMs).unref();
  return () => clearInterval(timer);
}
