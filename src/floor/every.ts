import { setTimeout as sleep } from 'node:timers/promises';

export type Repeated = ReturnType<typeof every>;

/**
 * Repeats `work`, `ms` after it last ended; starts at once, or `later`. Failures in a row are reported once, to `failed`, and their
 * end to `recovered`. `work` returns 'not due' if it tried nothing: then an earlier failure still counts.
 * `wake` ends a pause; during `work` it makes the next pause end at once, unless `work` fails. `stop` aborts the signal of `work`
 * and waits until it has ended, or for `stopMs`.
 */
export function every(
  ms: number,
  work: (signal: AbortSignal) => Promise<unknown>,
  {
    failed,
    recovered,
    later = false,
    stopMs,
  }: { failed: (err: unknown) => void; recovered?: () => void; later?: boolean; stopMs?: number },
) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let isWoken = false;
  let endPause = () => {};
  const pause = () =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms).unref();
      endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  async function repeat(): Promise<void> {
    let failing = false;
    if (later) await pause();
    while (!signal.aborted) {
      isWoken = false;
      try {
        if ((await work(signal)) !== 'not due') {
          if (failing) recovered?.();
          failing = false;
        }
      } catch (err) {
        if (!failing && !signal.aborted) failed(err);
        failing = true;
      }
      if ((failing || !isWoken) && !signal.aborted) await pause();
    }
  }
  const running = repeat();
  return {
    wake(): void {
      isWoken = true;
      endPause();
    },
    async stop(): Promise<void> {
      stopping.abort(new Error('shutting down'));
      endPause();
      const late = stopMs === undefined ? [] : [sleep(stopMs, undefined, { ref: false })];
      await Promise.race([running, ...late]);
    },
  };
}
