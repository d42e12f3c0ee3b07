import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from './log.ts';

/**
 * Does something again and again, `ms` after it last ended, until `signal` is aborted; the first time at once, or `later`.
 * A row of failures is said once, as `failed`. Resolves when the last has ended.
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
