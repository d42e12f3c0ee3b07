/**
 * How much of a connection may be under way at once, as the service shows to bear it: additive increase, multiplicative
 * decrease. Pure; limiter.ts keeps it in the connection's row, for all processes.
 */
export interface AdaptiveLimit {
  /** At most so many assets at once; null: as many as are allowed anyway. */
  limit: number | null;
  /** How often in a row nothing else came than trouble, although only one was under way. */
  strikes: number;
  /** When it became slower last, by the database's clock, in epoch milliseconds. */
  slowedAt: number;
}

export const fullSpeed: AdaptiveLimit = { limit: null, strikes: 0, slowedAt: 0 };

/** What was under way when it became slower says nothing of whether that was enough. */
export const quietMs = 5000;
/** So many answers, and one more may be under way. */
export const answersPerStep = 20;
/** Pauses of a connection that gets no answer at all: the first, twice that, four times … the last. */
const [firstPauseMs, lastPauseMs] = [5000, 300_000];

/**
 * After an answer that says "too much" (429, 503, another 5xx), or none: half as many; when there is only one left, a
 * pause, longer each time. A single fault at one at a time is no reason for a pause yet. Undefined: it is too early.
 */
export function slower(
  adaptiveLimit: AdaptiveLimit,
  ceiling: number,
  now: number,
): { adaptiveLimit: AdaptiveLimit; pauseMs: number } | undefined {
  const quiet = now - adaptiveLimit.slowedAt;
  // A time in the future was written before that clock was set back, and is no reason to wait.
  if (quiet >= 0 && quiet < quietMs) return undefined;
  const limit = limitOf(adaptiveLimit, ceiling);
  if (limit > 1) return { adaptiveLimit: { limit: Math.floor(limit / 2), strikes: 0, slowedAt: now }, pauseMs: 0 };
  const { strikes } = adaptiveLimit;
  const pauseMs = strikes === 0 ? 0 : Math.min(firstPauseMs * 2 ** (strikes - 1), lastPauseMs);
  return { adaptiveLimit: { limit: 1, strikes: strikes + 1, slowedAt: now }, pauseMs };
}

/** After `answersPerStep` answers: one more. */
export function faster(adaptiveLimit: AdaptiveLimit, ceiling: number): AdaptiveLimit {
  const limit = limitOf(adaptiveLimit, ceiling) + 1;
  return { ...answered(adaptiveLimit), limit: limit >= ceiling ? null : limit };
}

/** After an answer: whatever trouble there was, it was not all. */
export function answered(adaptiveLimit: AdaptiveLimit): AdaptiveLimit {
  return { ...adaptiveLimit, strikes: 0 };
}

/** At most so many at once. */
export function limitOf(adaptiveLimit: AdaptiveLimit | null, ceiling: number): number {
  return Math.max(1, Math.min(adaptiveLimit?.limit ?? ceiling, ceiling));
}
