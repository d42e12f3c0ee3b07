import type { Clock } from '../clock.ts';

const WINDOW = 15 * 60 * 1000;
const PER_EMAIL = 10;
const PER_ADDRESS = 50;
const CAPACITY = 10_000;

/** Limits sign-in attempts per account and per address, against guessing of passwords. */
export class Attempts {
  readonly #clock: Clock;
  readonly #failures = new Map<string, { count: number; until: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Counts an attempt, before the password is checked: parallel attempts count, too. Returns the seconds to wait. */
  begin(email: string, address: string): number {
    const keys = [emailKey(email), addressKey(address)] as const;
    const wait = Math.max(this.#secondsLeft(keys[0], PER_EMAIL), this.#secondsLeft(keys[1], PER_ADDRESS));
    if (wait === 0) for (const key of keys) this.#count(key);
    return wait;
  }

  succeeded(email: string, address: string): void {
    this.#failures.delete(emailKey(email));
    const entry = this.#failures.get(addressKey(address));
    if (entry) entry.count--;
  }

  #count(key: string): void {
    const now = this.#clock.now();
    if (this.#failures.size >= CAPACITY) this.#makeRoom(now);
    const old = this.#failures.get(key);
    const isOpen = old !== undefined && old.until > now;
    this.#failures.set(key, isOpen ? { ...old, count: old.count + 1 } : { count: 1, until: now + WINDOW });
  }

  #makeRoom(now: number): void {
    for (const [key, { until }] of this.#failures) if (until <= now) this.#failures.delete(key);
    if (this.#failures.size >= CAPACITY) this.#failures.delete(this.#failures.keys().next().value!);
  }

  #secondsLeft(key: string, limit: number): number {
    const entry = this.#failures.get(key);
    const now = this.#clock.now();
    return entry && entry.count >= limit && entry.until > now ? Math.ceil((entry.until - now) / 1000) : 0;
  }
}

function emailKey(email: string): string {
  return `email ${email.trim().toLowerCase()}`;
}

function addressKey(address: string): string {
  return `address ${address}`;
}
