/**
 * How many assets of a connection may be in flight at once, as far as the library can handle it: additive increase,
 * multiplicative decrease. Pure; adaptive-concurrency.ts keeps it in the connection's row, for all processes.
 */
export interface AdaptiveLimit {
  /** Maximum of assets in flight; null: only the configured maximum applies. */
  limit: number | null;
  /** Failures in a row with only one asset in flight. */
  strikes: number;
  /** When the limit was last lowered, by the database's clock, in epoch milliseconds. */
  slowedAt: number;
}

export const fullSpeed: AdaptiveLimit = { limit: null, strikes: 0, slowedAt: 0 };

/** For this long after a step down, errors are ignored: they may come from requests that were in flight before it. */
export const quietMs = 5000;
/** After this many answers, one more asset may be in flight. */
export const answersPerStep = 20;
/** Pauses of a connection whose requests all fail. Each is twice the one before, up to the last. */
const [firstPauseMs, lastPauseMs] = [5000, 300_000];

/**
 * After 429, 503, another 5xx or no answer: half as many; if the limit is 1 already, a pause, longer each time. A single
 * failure at limit 1 causes no pause yet. Undefined: too early after the last step.
 */
export function slower(
  adaptiveLimit: AdaptiveLimit,
  ceiling: number,
  now: number,
): { adaptiveLimit: AdaptiveLimit; pauseMs: number } | undefined {
  const quiet = now - adaptiveLimit.slowedAt;
  // A time in the future was written before the database's clock was set back.
  if (quiet >= 0 && quiet < quietMs) return undefined;
  const limit = limitOf(adaptiveLimit, ceiling);
  if (limit > 1) return { adaptiveLimit: { limit: Math.floor(limit / 2), strikes: 0, slowedAt: now }, pauseMs: 0 };
  const { strikes } = adaptiveLimit;
  const pauseMs = strikes === 0 ? 0 : Math.min(firstPauseMs * 2 ** (strikes - 1), lastPauseMs);
  return { adaptiveLimit: { limit: 1, strikes: strikes + 1, slowedAt: now }, pauseMs };
}

/** After `answersPerStep` answers: one more asset at once. */
export function faster(adaptiveLimit: AdaptiveLimit, ceiling: number): AdaptiveLimit {
  const limit = limitOf(adaptiveLimit, ceiling) + 1;
  return { ...answered(adaptiveLimit), limit: limit >= ceiling ? null : limit };
}

/** After an answer: the series of failures ends. */
export function answered(adaptiveLimit: AdaptiveLimit): AdaptiveLimit {
  return { ...adaptiveLimit, strikes: 0 };
}

/** The maximum of assets in flight now. */
export function limitOf(adaptiveLimit: AdaptiveLimit | null, ceiling: number): number {
  return Math.max(1, Math.min(adaptiveLimit?.limit ?? ceiling, ceiling));
}
