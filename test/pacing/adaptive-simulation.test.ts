import { expect, test } from 'vitest';
import { simulate, sum } from './simulated-library.ts';

test.each([20, 100, 300].flatMap((latency) => [20, 60, 400].map((perSecond) => [perSecond, latency] as const)))(
  'a library that allows %i requests per second, at %i ms, is used to 85 percent, and refuses less than 1 percent in two minutes',
  (perSecond, latency) => {
    const transferMs = latency * 1.5 + 60;
    const [seen] = simulate({ latency, perSecond, transferMs, seconds: 120 });
    const possible = 60 * Math.min(perSecond, 128_000 / (latency * 1.05 + transferMs));
    expect(sum(seen!.mirrored.slice(0, 60)) / possible).toBeGreaterThan(0.85);
    expect(sum(seen!.refused)).toBeLessThan(sum(seen!.mirrored) / 100);
  },
);

test.each([1, 2, 3])('after the first seconds, the library refuses requests at most every 30 seconds (%i)', (seed) => {
  const [seen] = simulate({ latency: 100, perSecond: 60, transferMs: 210, seconds: 120, seed });
  const refused = [...seen!.refused.entries()].flatMap(([second, count]) => (second > 5 && count > 0 ? [second] : []));
  for (const [index, second] of refused.slice(1).entries()) {
    const since = second - refused[index]!;
    if (since > 1) expect(since).toBeGreaterThan(30);
  }
  // Each refusal costs two seconds: the wait that the library asks for, and the one in which requests begin again.
  expect(seen!.mirrored.slice(12).filter((count) => count < 48).length).toBeLessThanOrEqual(8);
});

test.each([
  [10, 50],
  [2, 10],
])('a library that works on %i requests at once is used fully, with at most %i assets in flight', (workers, most) => {
  const [seen] = simulate({ latency: 20, workers, workMs: 100, transferMs: 20 });
  expect(sum(seen!.mirrored)).toBeGreaterThan(0.9 * workers * 600);
  expect(seen!.limits.at(-1)).toBeLessThanOrEqual(most);
});

test.each([
  [60, 20],
  [20, 100],
  [60, 100],
  [400, 100],
  [20, 300],
  [60, 300],
])(
  'of two connections that share %i requests per second, at %i ms, each gets 40 percent from the first minute',
  { tags: 'slow' },
  (perSecond, latency) => {
    const conditions = { latency, perSecond, transferMs: latency * 1.5 + 60, seconds: 240, begin: [0, 30] };
    const [flooding, other] = simulate(conditions).map(({ mirrored }) => mirrored);
    for (const to of [90, 240]) {
      const [a, b] = [flooding!, other!].map((counts) => sum(counts.slice(30, to)));
      expect(b! / (a! + b!)).toBeGreaterThan(0.4);
      expect(b! / (a! + b!)).toBeLessThan(0.6);
    }
  },
);

test('connections with limits of their own use most of them, although they are sometimes refused together', () => {
  const perSecond = [20, 60];
  const seen = simulate({ latency: 100, perSecond, transferMs: 210, seconds: 240, begin: [0, 0] });
  for (const [index, { mirrored }] of seen.entries()) {
    expect(sum(mirrored) / (240 * perSecond[index]!)).toBeGreaterThan(0.8);
  }
});
