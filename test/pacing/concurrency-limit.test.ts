import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type AdaptiveLimit,
  type Concurrency,
  faster,
  limitOf,
  quietMs,
  slower,
} from '../../src/pacing/concurrency-limit.ts';

const untried: AdaptiveLimit = { limit: 16, limitAtObjection: null, strikes: 0, slowedAt: 0 };
const at = (adaptiveLimit: AdaptiveLimit, ceiling: number, now: number): Concurrency => ({
  adaptiveLimit,
  ceiling,
  limit: limitOf(adaptiveLimit, ceiling),
  queued: ceiling,
  now,
});

/** Several failures, each after the quiet time. */
function failures(adaptiveLimit: AdaptiveLimit, ceiling: number, count: number): { limit: number; pauseMs: number }[] {
  let now = adaptiveLimit.slowedAt;
  return Array.from({ length: count }, () => {
    now += quietMs;
    const slowed = slower(at(adaptiveLimit, ceiling, now), 'failure')!;
    adaptiveLimit = slowed.adaptiveLimit;
    return { limit: limitOf(adaptiveLimit, ceiling), pauseMs: slowed.pauseMs };
  });
}

describe('the concurrency limit after errors', () => {
  test('an error halves the concurrency limit, down to one', () => {
    expect(failures(untried, 16, 5).map(({ limit }) => limit)).toEqual([8, 4, 2, 1, 1]);
    expect(failures(untried, 5, 3).map(({ limit }) => limit)).toEqual([2, 1, 1]);
  });

  test('errors at a limit of one make pauses, each twice as long as the last, up to five minutes', () => {
    const pauses = failures(untried, 1, 10).map(({ pauseMs }) => pauseMs / 1000);
    expect(pauses).toEqual([0, 5, 10, 20, 40, 80, 160, 300, 300, 300]);
  });

  test('errors of requests that were sent before the limit was halved change nothing more', () => {
    const { adaptiveLimit } = slower(at(untried, 8, 1_000_000), 'failure')!;
    for (const ms of [0, 1, quietMs - 1]) {
      expect(slower(at(adaptiveLimit, 8, 1_000_000 + ms), 'failure')).toBeUndefined();
    }
    expect(slower(at(adaptiveLimit, 8, 1_000_000 + quietMs), 'failure')?.adaptiveLimit.limit).toBe(2);
  });

  test('an error counts although the clock of another machine is ahead', () => {
    const ahead = { limit: 4, limitAtObjection: 8, strikes: 0, slowedAt: 9_000_000 };
    expect(slower(at(ahead, 8, 1_000_000), 'failure')?.adaptiveLimit.limit).toBe(2);
  });

  test('a longer latency lowers the concurrency limit less than an error', () => {
    expect(slower(at(untried, 64, 1_000_000), 'latency')?.adaptiveLimit.limit).toBe(13);
  });
});

describe('the concurrency limit after quick answers', () => {
  test('the concurrency limit rises quickly until the library objects for the first time, up to the ceiling', () => {
    let adaptiveLimit = untried;
    const limits = Array.from({ length: 4 }, () => {
      adaptiveLimit = faster(at(adaptiveLimit, 100, 1_000_000));
      return adaptiveLimit.limit;
    });
    expect(limits).toEqual([22, 30, 42, 58]);
  });

  test.each([1, 2])('the concurrency limit rises from %i, too', (limit) => {
    expect(faster(at({ ...untried, limit }, 64, 1_000_000)).limit).toBe(limit + 1);
  });

  test('a low ceiling does not lower the limit that holds after it', () => {
    expect(faster(at(untried, 1, 1_000_000)).limit).toBe(16);
  });

  test('the concurrency limit returns in 12 seconds to where the library objected, and then goes on', () => {
    const begin = 1_000_000;
    let { adaptiveLimit } = slower(at({ ...untried, limit: 40 }, 64, begin), 'failure')!;
    const limits = [];
    for (let second = 1; second <= 60; second++) {
      adaptiveLimit = faster(at(adaptiveLimit, 64, begin + second * 1000));
      limits.push(adaptiveLimit.limit);
    }
    expect(limits.slice(0, 5)).toEqual([26, 33, 34, 36, 37]);
    expect([limits[11], limits[19], limits[23], limits[29]]).toEqual([40, 44, 53, 64]);
  });

  test('a connection that was at its lowest limit recovers in a minute and a half', () => {
    let adaptiveLimit: AdaptiveLimit = { limit: 1, limitAtObjection: 1, strikes: 3, slowedAt: 1_000_000 };
    for (let second = 1; second <= 90; second++) {
      adaptiveLimit = faster(at(adaptiveLimit, 64, 1_000_000 + second * 1000));
    }
    expect(adaptiveLimit).toMatchObject({ limit: 64, strikes: 0 });
  });
});

test('the concurrency limit stays between one and its ceiling, whatever happens', () => {
  const step = fc.record({ fails: fc.boolean(), ms: fc.nat(20_000), ceiling: fc.integer({ min: 1, max: 64 }) });
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      let adaptiveLimit = untried;
      let now = 1_000_000;
      for (const { fails, ms, ceiling } of steps) {
        const before = limitOf(adaptiveLimit, ceiling);
        now += ms;
        const slowed = fails ? slower(at(adaptiveLimit, ceiling, now), 'failure') : undefined;
        adaptiveLimit = fails ? (slowed?.adaptiveLimit ?? adaptiveLimit) : faster(at(adaptiveLimit, ceiling, now));
        const limit = limitOf(adaptiveLimit, ceiling);
        expect(limit).toBeGreaterThanOrEqual(1);
        expect(limit).toBeLessThanOrEqual(ceiling);
        if (fails) expect(limit).toBeLessThanOrEqual(before);
        else expect(limit).toBeGreaterThanOrEqual(before);
        if (slowed?.pauseMs) expect(before).toBe(1);
      }
    }),
  );
});
