import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type AdaptiveLimit,
  answered,
  faster,
  fullSpeed,
  limitOf,
  quietMs,
  slower,
} from '../../src/pacing/concurrency-limit.ts';

/** Several failures, each after the quiet time. */
function troubles(adaptiveLimit: AdaptiveLimit, ceiling: number, count: number): { limit: number; pauseMs: number }[] {
  let at = adaptiveLimit.slowedAt;
  return Array.from({ length: count }, () => {
    at += quietMs;
    const slowed = slower(adaptiveLimit, ceiling, at)!;
    adaptiveLimit = slowed.adaptiveLimit;
    return { limit: limitOf(adaptiveLimit, ceiling), pauseMs: slowed.pauseMs };
  });
}

describe('the concurrency limit after errors', () => {
  test('an error halves the concurrency limit, down to one', () => {
    expect(troubles(fullSpeed, 16, 5).map(({ limit }) => limit)).toEqual([8, 4, 2, 1, 1]);
    expect(troubles(fullSpeed, 5, 3).map(({ limit }) => limit)).toEqual([2, 1, 1]);
  });

  test('errors at a limit of one make pauses, each twice as long as the last, up to five minutes', () => {
    const pauses = troubles(fullSpeed, 1, 10).map(({ pauseMs }) => pauseMs / 1000);
    expect(pauses).toEqual([0, 5, 10, 20, 40, 80, 160, 300, 300, 300]);
  });

  test('errors of requests that were sent before the limit was halved change nothing more', () => {
    const { adaptiveLimit } = slower(fullSpeed, 8, 1_000_000)!;
    for (const after of [0, 1, quietMs - 1]) expect(slower(adaptiveLimit, 8, 1_000_000 + after)).toBeUndefined();
    expect(slower(adaptiveLimit, 8, 1_000_000 + quietMs)?.adaptiveLimit.limit).toBe(2);
  });

  test('an error counts although the clock of another machine is ahead', () => {
    expect(slower({ limit: 4, strikes: 0, slowedAt: 9_000_000 }, 8, 1_000_000)?.adaptiveLimit.limit).toBe(2);
  });
});

describe('the concurrency limit after answers', () => {
  test('each answer raises the concurrency limit by one, up to the ceiling', () => {
    let adaptiveLimit: AdaptiveLimit = { limit: 1, strikes: 3, slowedAt: 5 };
    const limits = Array.from({ length: 4 }, () => {
      adaptiveLimit = faster(adaptiveLimit, 4);
      return adaptiveLimit.limit;
    });
    expect(limits).toEqual([2, 3, null, null]);
    expect(limitOf(adaptiveLimit, 4)).toBe(4);
    expect(limitOf(adaptiveLimit, 9)).toBe(9);
  });

  test('an answer ends a series of growing pauses', () => {
    const [, , third] = troubles(fullSpeed, 1, 3);
    expect(third!.pauseMs).toBe(10_000);
    const struck = slower(slower(fullSpeed, 1, quietMs)!.adaptiveLimit, 1, 2 * quietMs)!.adaptiveLimit;
    expect(struck.strikes).toBe(2);
    expect(slower(answered(struck), 1, 3 * quietMs)).toMatchObject({ pauseMs: 0, adaptiveLimit: { strikes: 1 } });
  });
});

test('the concurrency limit stays between one and its ceiling, whatever happens', () => {
  const step = fc.record({ trouble: fc.boolean(), ms: fc.nat(20_000), ceiling: fc.integer({ min: 1, max: 64 }) });
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      let adaptiveLimit = fullSpeed;
      let now = 1_000_000;
      for (const { trouble, ms, ceiling } of steps) {
        const before = limitOf(adaptiveLimit, ceiling);
        now += ms;
        const slowed = trouble ? slower(adaptiveLimit, ceiling, now) : undefined;
        adaptiveLimit = trouble ? (slowed?.adaptiveLimit ?? adaptiveLimit) : faster(adaptiveLimit, ceiling);
        const limit = limitOf(adaptiveLimit, ceiling);
        expect(limit).toBeGreaterThanOrEqual(1);
        expect(limit).toBeLessThanOrEqual(ceiling);
        if (trouble) expect(limit).toBeLessThanOrEqual(before);
        else expect(limit).toBe(Math.min(before + 1, ceiling));
        if (slowed?.pauseMs) expect(before).toBe(1);
      }
    }),
  );
});
