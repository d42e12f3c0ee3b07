import type { Clock } from '../clock.ts';

const WINDOW = 15 * 60 * 1000;
const PER_EMAIL = 10;
const PER_ADDRESS = 50;
const MOST_KEPT = 10_000;

/** Slows guessing of passwords, for one account and from one address. */
export type Attempts = {
  /**
   * Counts an attempt before it is looked at, so that many at once are no way around. Answers how many seconds until
   * this one may be looked at; 0 is now.
   */
  begin(email: string, address: string): number;
  succeeded(email: string, address: string): void;
};

export function createAttempts(clock: Clock): Attempts {
  const failures = new Map<string, { count: number; until: number }>();
  const emailKey = (email: string) => `email ${email.trim().toLowerCase()}`;

  const addressKey = (address: string) => `address ${address}`;

  function count(key: string): void {
    const now = clock.now();
    if (failures.size >= MOST_KEPT) {
      for (const [key, { until }] of failures) if (until <= now) failures.delete(key);
      if (failures.size >= MOST_KEPT) failures.delete(failures.keys().next().value!);
    }
    const old = failures.get(key);
    failures.set(key, old && old.until > now ? { ...old, count: old.count + 1 } : { count: 1, until: now + WINDOW });
  }

  function left(key: string, limit: number): number {
    const entry = failures.get(key);
    const now = clock.now();
    return entry && entry.count >= limit && entry.until > now ? Math.ceil((entry.until - now) / 1000) : 0;
  }

  return {
    begin(email, address) {
      const wait = Math.max(left(emailKey(email), PER_EMAIL), left(addressKey(address), PER_ADDRESS));
      if (wait === 0) for (const key of [emailKey(email), addressKey(address)]) count(key);
      return wait;
    },
    succeeded(email, address) {
      failures.delete(emailKey(email));
      const entry = failures.get(addressKey(address));
      if (entry) entry.count--;
    },
  };
}
