import { setTimeout as sleep } from 'node:timers/promises';

/** The result of `work`, or undefined after `ms`. */
export async function within<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
  const ended = new AbortController();
  const late = sleep(ms, undefined, { signal: ended.signal }).catch(() => undefined);
  return Promise.race([work, late]).finally(() => ended.abort());
}
