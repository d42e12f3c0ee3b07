import { LeaseLost } from './errors.ts';

/**
 * Renews a lease of this process until `end`: regularly, and at each call of `check`. `lost` is aborted when another process
 * has it, or may have it because it was not renewed in time. `leased` names what it is for, in the reason.
 */
export function keepLease(leased: string, leaseMs: number, renew: () => Promise<boolean>) {
  const lost = new AbortController();
  let renewedAt = performance.now();
  const lose = () => lost.abort(new LeaseLost(leased));
  const check = async () => {
    const askedAt = performance.now();
    try {
      if (await renew()) renewedAt = Math.max(renewedAt, askedAt);
      else lose();
    } catch {
      // The database may be back before the lease ends.
    }
  };
  const everyMs = leaseMs / 4;
  const timer = setInterval(() => {
    // At the next time, the lease would have ended.
    if (performance.now() - renewedAt >= leaseMs - everyMs) lose();
    else void check();
  }, everyMs).unref();
  return { lost: lost.signal, check, end: () => clearInterval(timer) };
}
