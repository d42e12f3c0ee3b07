/**
 * How many assets of a connection may be in flight at once, as far as the library can handle it. Pure; adaptive-concurrency.ts keeps
 * it in the connection's row, for all processes.
 *
 * The limit behaves like the congestion window of TCP: it grows by a factor until the library objects for the first time (slow
 * start, RFC 5681), and then follows the curve of CUBIC (RFC 9438): fast at first, slow near the limit at which the library last
 * objected, and faster beyond. A longer latency counts as an objection, as in TCP Vegas and in Netflix's concurrency-limits.
 */
export interface AdaptiveLimit {
  /** Maximum of assets in flight. */
  limit: number;
  /** The limit at which the library last objected; null: it never has. */
  limitAtObjection: number | null;
  /** Failures in a row with only one asset in flight. */
  strikes: number;
  /** When the limit was last lowered, by the database's clock, in epoch milliseconds. */
  slowedAt: number;
}

/** For this long after a step down, errors are ignored: they may come from requests that were in flight before it. */
export const quietMs = 5000;
/** The share of the limit that remains after a failure, and after a longer latency. */
const remaining = { failure: 0.5, latency: 0.85 };
export type Objection = keyof typeof remaining;
/** Slow start multiplies the limit by this. With TCP's 2, a burst of requests goes out at each step, and the library refuses some. */
const slowStart = 1.4;
/** How long the curve takes back to the limit at which the library objected. */
const plateauMs = 12_000;
/** Pauses of a connection whose requests all fail. Each is twice the one before, up to the last. */
const [firstPauseMs, lastPauseMs] = [5000, 300_000];

/** A connection as a step finds it. */
export interface Concurrency {
  adaptiveLimit: AdaptiveLimit;
  /** The maximum of its limit, as configured. */
  ceiling: number;
  /** How many assets may be in flight, and how many are on the queue. */
  limit: number;
  queued: number;
  /** By the database's clock, in epoch milliseconds. */
  now: number;
}

/**
 * After an objection of the library: fewer at once; if the limit is 1 already, a pause, longer each time. A single
 * failure at limit 1 causes no pause yet. Undefined: too early after the last step.
 */
export function slower(
  { adaptiveLimit: { limitAtObjection, slowedAt, strikes }, limit, now }: Concurrency,
  objection: Objection,
): { adaptiveLimit: AdaptiveLimit; pauseMs: number } | undefined {
  const quiet = now - slowedAt;
  // A time in the future was written before the database's clock was set back.
  if (quiet >= 0 && quiet < quietMs) return undefined;
  if (limit > 1) {
    const lower = Math.max(1, Math.floor(limit * remaining[objection]));
    return { adaptiveLimit: { limit: lower, limitAtObjection: limit, strikes: 0, slowedAt: now }, pauseMs: 0 };
  }
  const pauseMs = strikes === 0 ? 0 : Math.min(firstPauseMs * 2 ** (strikes - 1), lastPauseMs);
  return { adaptiveLimit: { limit: 1, limitAtObjection, strikes: strikes + 1, slowedAt: now }, pauseMs };
}

/** After a period in which all slots were used and the library answered as quickly as before. */
export function faster({ adaptiveLimit, limit, ceiling, now }: Concurrency): AdaptiveLimit {
  const { limitAtObjection, slowedAt } = adaptiveLimit;
  const most =
    limitAtObjection === null
      ? Math.max(limit + 1, limit * slowStart)
      : Math.min(curve(limitAtObjection, now - slowedAt), limit * 1.25 + 1);
  // A ceiling that is lower for a while does not lower the limit itself.
  const higher = Math.max(adaptiveLimit.limit, Math.min(ceiling, Math.floor(most)));
  return { ...adaptiveLimit, strikes: 0, limit: higher };
}

/**
 * CUBIC's curve: 0.7 of the limit at first, the limit itself after `plateauMs`, and then more, by at least one per `plateauMs`. After a
 * failure the limit is lower than that, so `faster` also bounds each step.
 */
function curve(limitAtObjection: number, sinceMs: number): number {
  // A time in the future was written before the database's clock was set back.
  const from = sinceMs < 0 ? 0 : 1 - sinceMs / plateauMs;
  return limitAtObjection * (1 - 0.3 * from ** 3) + Math.max(0, -from);
}

/** The maximum of assets in flight now. */
export function limitOf({ limit }: AdaptiveLimit, ceiling: number): number {
  return Math.max(1, Math.min(limit, ceiling));
}
