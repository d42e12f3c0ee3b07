import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from './log.ts';

/**
 * Repeats `work`, `ms` after it last ended, until `signal` is aborted; starts at once, or `later`. Failures in a row are
 * logged once, as `failed`. Resolves when the last call has ended.
 */
export async function every(
  ms: number,
  work: () => Promise<unknown>,
  { signal, log, failed, later = false }: { signal: AbortSignal; log: Log; failed: string; later?: boolean },
): Promise<void> {
  let failing = false;
  const pause = () => sleep(ms, undefined, { signal, ref: false }).catch(() => {});
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
