import { RateLimiterMemory } from 'rate-limiter-flexible';

export type Guesses = ReturnType<typeof createGuesses>;

/** Wrong tokens from one address, and in how many seconds. */
const mostFailures = 10;
const failureWindow = 60;

/** Counts wrong tokens by the address that they come from, each process for itself: with too many it has to wait. */
export function createGuesses() {
  const failures = new RateLimiterMemory({ points: mostFailures, duration: failureWindow });
  return {
    /** Seconds until this address may try again; undefined: it may. */
    async wait(address: string): Promise<number | undefined> {
      const before = await failures.get(address);
      return before && before.consumedPoints >= mostFailures ? Math.ceil(before.msBeforeNext / 1000) : undefined;
    },

    async failed(address: string): Promise<void> {
      await failures.penalty(address);
    },

    async forget(address: string): Promise<void> {
      await failures.delete(address);
    },
  };
}
