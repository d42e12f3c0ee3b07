import { setTimeout as sleep } from 'node:timers/promises';

export type Repeated = ReturnType<typeof every>;

/**
 * Repeats `work`, `ms` after it last ended; starts at once, or `later`. Failures in a row are reported once, to `failed`. `work`
 * returns 'not due' if it tried nothing: then an earlier failure still counts.
 * `wake` ends a pause. `stop` aborts the signal of `work` and waits until it has ended, or for `stopMs`.
 */
export function every(
  ms: number,
  work: (signal: AbortSignal) => Promise<unknown>,
  { failed, later = false, stopMs }: { failed: (err: unknown) => void; later?: boolean; stopMs?: number },
) {
  const stopping = new AbortController();
  const { signal } = stopping;
  let wake = () => {};
  const pause = () => {
    const ended = new AbortController();
    wake = () => ended.abort();
    const either = AbortSignal.any([signal, ended.signal]);
    return sleep(ms, undefined, { signal: either, ref: false }).catch(() => {});
  };
  async function repeat(): Promise<void> {
    let failing = false;
    if (later) await pause();
    while (!signal.aborted) {
      try {
        if ((await work(signal)) !== 'not due') failing = false;
      } catch (err) {
        if (!failing && !signal.aborted) failed(err);
        failing = true;
      }
      await pause();
    }
  }
  const running = repeat();
  return {
    wake: () => wake(),
    async stop(): Promise<void> {
      stopping.abort(new Error('shutting down'));
      const late = stopMs === undefined ? [] : [sleep(stopMs, undefined, { ref: false })];
      await Promise.race([running, ...late]);
    },
  };
}
