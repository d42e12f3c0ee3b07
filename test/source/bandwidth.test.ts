import { expect, test } from 'vitest';
import { createThrottle } from '../../src/source/bandwidth.ts';

const { signal } = new AbortController();

test('several bodies together keep the limit, however they share it', async () => {
  const throttle = createThrottle(1_000_000);
  const started = performance.now();
  await Promise.all(
    [10_000, 40_000, 5_000].map(async (chunk) => {
      for (let sent = 0; sent < 200_000; sent += chunk) await throttle(chunk, signal);
    }),
  );
  // 600,000 bytes at this rate take 600 ms, less the slack; no clock lets them through sooner.
  expect(performance.now() - started).toBeGreaterThanOrEqual(490);
});

test('a pause is not saved up to be spent in a burst', async () => {
  const throttle = createThrottle(1_000_000);
  await throttle(200_000, signal);
  await new Promise((resolve) => setTimeout(resolve, 300));
  const started = performance.now();
  await throttle(300_000, signal);
  expect(performance.now() - started).toBeGreaterThanOrEqual(190);
});

test('who waits can be told to stop', async () => {
  const throttle = createThrottle(1000);
  const stop = new AbortController();
  const waiting = throttle(1_000_000, stop.signal);
  stop.abort(new Error('shutting down'));
  await expect(waiting).rejects.toThrow();
});

test('without a limit nothing waits', () => {
  expect(createThrottle(undefined)(1e12, signal)).toBeUndefined();
});
