import { every } from '../floor/every.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { Store } from '../store/store.ts';

/** What a chore needs, besides its own work. */
export interface ChoreDeps {
  store: Pick<Store, 'chores'>;
  /** Of the bucket. */
  breaker: Pick<CircuitBreaker, 'openReason'>;
}

/**
 * Repeats background work on the bucket, `everyMs` after it ended. After an error, or if the process dies, it is due again `retryMs`
 * after it began; until then, no other process begins it. Each process checks every `checkMs` whether it is due. `retryMs` and
 * `checkMs` are `everyMs` if not given. `graceMs`: see store/settings/chores.ts. A stop waits at most a second, because the bucket
 * may not answer.
 */
export function startChore(
  { store, breaker }: ChoreDeps,
  options: {
    name: string;
    everyMs: number;
    checkMs?: number;
    retryMs?: number;
    graceMs?: number;
    failed: (err: unknown) => void;
  },
  work: (signal: AbortSignal) => Promise<unknown>,
) {
  const { name, everyMs, checkMs = everyMs, retryMs = everyMs, graceMs, failed } = options;
  async function workIfDue(signal: AbortSignal): Promise<'not due' | undefined> {
    if (breaker.openReason !== undefined) return 'not due';
    if (!(await store.chores.take(name, retryMs, { graceMs }))) return 'not due';
    await work(signal);
    // A timer that fires a moment early must still find the chore due.
    await store.chores.done(name, everyMs - checkMs / 10);
    return undefined;
  }
  return every(checkMs, workIfDue, { failed, stopMs: 1000 });
}
