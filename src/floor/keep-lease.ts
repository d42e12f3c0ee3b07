import { LeaseLost } from './errors.ts';

/**
 * Renews a lease of this process until `end`: regularly, and at each call of `check`. `signal` is aborted by `stop`, and when another
 * process has the lease, or may have it because it was not renewed in time. `fence` is for the moment before something that cannot be
 * undone: a process that was suspended does not know yet that its lease has ended. `leased` names what it is for, in the reason.
 */
export function keepLease(
  leased: string,
  { leaseMs, stop, renew }: { leaseMs: number; stop: AbortSignal; renew: () => Promise<boolean> },
) {
  const aborter = new AbortController();
  const { signal } = aborter;
  // AbortSignal.any would keep each signal that still has a listener for as long as `stop` exists.
  const stopped = () => aborter.abort(stop.reason);
  if (stop.aborted) stopped();
  stop.addEventListener('abort', stopped);
  let renewedAt = performance.now();
  // While the machine sleeps, only this clock goes on.
  let renewedDate = Date.now();
  const lose = () => aborter.abort(new LeaseLost(leased));
  const check = async () => {
    const [askedAt, askedDate] = [performance.now(), Date.now()];
    try {
      if (!(await renew())) lose();
      else if (askedAt >= renewedAt) [renewedAt, renewedDate] = [askedAt, askedDate];
    } catch {
      // The database may be back before the lease ends.
    }
  };
  const everyMs = leaseMs / 4;
  const isEnding = () =>
    Math.max(performance.now() - renewedAt, Date.now() - renewedDate) >= leaseMs - everyMs || Date.now() < renewedDate;
  /** @throws LeaseLost, or the reason of `stop` */
  const fence = async () => {
    if (isEnding()) await check();
    if (isEnding()) lose();
    signal.throwIfAborted();
  };
  const timer = setInterval(() => {
    // At the next time, the lease would have ended.
    if (performance.now() - renewedAt >= leaseMs - everyMs) lose();
    else void check();
  }, everyMs).unref();
  const end = () => {
    clearInterval(timer);
    stop.removeEventListener('abort', stopped);
  };
  return { signal, check, fence, end };
}
