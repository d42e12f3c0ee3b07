import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from './log.ts';

/**
 * Repeats `work`, `ms` after it last ended, until `signal` is aborted; starts at once, or `later`. Failures in a row are
 * logged once, as `failed`. `onPause` gets a function that ends the pause. Resolves when the last call has ended.
 */
export async function every(
  ms: number,
  work: () => Promise<unknown>,
  options: { signal: AbortSignal; log: Log; failed: string; later?: boolean; onPause?: (end: () => void) => void },
): Promise<void> {
  const { signal, log, failed, later = false, onPause } = options;
  let failing = false;
  const pause = () => {
    const ended = new AbortController();
    onPause?.(() => ended.abort());
    const either = AbortSignal.any([signal, ended.signal]);
    return sleep(ms, undefined, { signal: either, ref: false }).catch(() => {});
  };
  if (later) await pause();
  while (!signal.aborted) {
    try {
      await work();
      failing = false;
    } catch (err) {
      if (!failing && !signal.aborted) log.warn({ err }, failed);
      failing = true;
    }
    await pause();
  }
}
