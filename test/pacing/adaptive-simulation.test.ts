import { expect, test } from 'vitest';
import { simulate, sum } from './simulated-library.ts';

test.each([20, 100, 300].flatMap((latency) => [20, 60, 400].map((perSecond) => [perSecond, latency] as const)))(
  'a library that allows %i requests per second, at %i ms, is used to 85 %%, and refuses about 1 %%',
  (perSecond, latency) => {
    const transferMs = latency * 1.5 + 60;
    const [seen] = simulate({ latency, perSecond, transferMs });
    const possible = 60 * Math.min(perSecond, 128_000 / (latency * 1.05 + transferMs));
    expect(sum(seen!.mirrored) / possible).toBeGreaterThan(0.85);
    // The reserve of the first second hides the library's limit at first.
    expect(sum(seen!.refused)).toBeLessThan(8 + possible / 100);
  },
);

test('the rate of requests stays even after the first seconds', () => {
  const [seen] = simulate({ latency: 100, perSecond: 60, transferMs: 210 });
  const settled = seen!.mirrored.slice(12, 50);
  expect(Math.min(...settled)).toBeGreaterThan(48);
  expect(Math.max(...settled)).toBeLessThan(70);
  expect(sum(seen!.refused.slice(12, 50))).toBe(0);
});

test.each([
  [10, 50],
  [2, 10],
])('a library that works on %i requests at once is used fully, with at most %i assets in flight', (workers, most) => {
  const [seen] = simulate({ latency: 20, workers, workMs: 100, transferMs: 20 });
  expect(sum(seen!.mirrored)).toBeGreaterThan(0.9 * workers * 600);
  expect(seen!.limits.at(-1)).toBeLessThanOrEqual(most);
});

test('of two connections that share the limit of the library, each gets at least a third', () => {
  const [flooding, other] = simulate({ latency: 100, perSecond: 60, transferMs: 210, seconds: 180, begin: [0, 30] });
  const [a, b] = [flooding!, other!].map(({ mirrored }) => sum(mirrored.slice(60)));
  expect(b! / (a! + b!)).toBeGreaterThan(1 / 3);
  expect(b! / (a! + b!)).toBeLessThan(2 / 3);
});
