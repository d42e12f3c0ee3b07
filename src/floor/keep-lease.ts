import { LeaseLost } from './errors.ts';

/** Now: by the monotonic clock, which may stop while the machine sleeps, and by the system clock, which may be set. */
export const bothClocks = () => ({ monotonic: performance.now(), system: Date.now() });
type BothClocks = ReturnType<typeof bothClocks>;

/**
 * Renews a lease of this process until `end`: regularly, and at each call of `check`. `signal` is aborted by `stop`, and when another
 * process has the lease, or may have it because it was not renewed in time. `fence` is for the moment before something that cannot be
 * undone: a process that was suspended does not know yet that its lease has ended. `leased` names what it is for, in the reason;
 * `since`: when the lease was requested.
 */
export function keepLease(
  leased: string,
  options: { leaseMs: number; stop: AbortSignal; since: BothClocks; renew: () => Promise<boolean> },
) {
  const { leaseMs, stop, since, renew } = options;
  const aborter = new AbortController();
  const { signal } = aborter;
  // AbortSignal.any would keep each signal that still has a listener for as long as `stop` exists.
  const stopped = () => aborter.abort(stop.reason);
  if (stop.aborted) stopped();
  stop.addEventListener('abort', stopped);
  let renewed = since;
  const lose = () => aborter.abort(new LeaseLost(leased));
  const check = async () => {
    const asked = bothClocks();
    try {
      if (!(await renew())) lose();
      else if (asked.monotonic >= renewed.monotonic) renewed = asked;
    } catch {
      // The database may be back before the lease ends.
    }
  };
  const everyMs = leaseMs / 4;
  const isEnding = () => {
    const { monotonic, system } = bothClocks();
    const age = Math.max(monotonic - renewed.monotonic, system - renewed.system);
    return age >= leaseMs / 2 || system < renewed.system;
  };
  /** @throws LeaseLost, or the reason of `stop` */
  const fence = async () => {
    if (isEnding()) await check();
    if (isEnding()) lose();
    signal.throwIfAborted();
  };
  const isLate = () => performance.now() - renewed.monotonic >= leaseMs - everyMs;
  const timer = setInterval(() => {
    void check();
    // The last renewal before the lease ends: if it is not answered soon, the lease is given up.
    if (isLate()) setTimeout(() => isLate() && lose(), everyMs / 2).unref();
  }, everyMs).unref();
  const end = () => {
    clearInterval(timer);
    stop.removeEventListener('abort', stopped);
  };
  return { signal, check, lose, fence, end };
}
