import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Repeats `work`, `ms` after it last ended, until `signal` is aborted; starts at once, or `later`. Failures in a row are
 * reported once, to `failed`. `onPause` gets a function that ends the pause. Resolves when the last call has ended.
 */
export async function every(
  ms: number,
  work: () => Promise<unknown>,
  options: {
    signal: AbortSignal;
    failed: (err: unknown) => void;
    later?: boolean;
    onPause?: (end: () => void) => void;
  },
): Promise<void> {
  const { signal, failed, later = false, onPause } = options;
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
      if (!failing && !signal.aborted) failed(err);
      failing = true;
    }
    await pause();
  }
}
