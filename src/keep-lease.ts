import { LeaseLost } from './errors.ts';

/**
 * Renews a lease of this process until `end`: regularly, and at each call of `check`. `lost` is aborted when another process
 * has it. `leased` names what it is for, in the reason.
 */
export function keepLease(leased: string, leaseMs: number, renew: () => Promise<boolean>) {
  const lost = new AbortController();
  const check = async () => {
    const isHolder = await renew().catch(() => true);
    if (!isHolder) lost.abort(new LeaseLost(leased));
  };
  const timer = setInterval(() => void check(), leaseMs / 4).unref();
  return { lost: lost.signal, check, end: () => clearInterval(timer) };
}
