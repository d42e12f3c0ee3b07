import { expect, test } from 'vitest';
import { timeLeft } from '../../src/operations/status/status.ts';

test.each([
  [{ count: 0, bytes: 0 }, { assetsPerSecond: 0, bytesPerSecond: 0 }, 0],
  [{ count: 10, bytes: 1000 }, { assetsPerSecond: 2, bytesPerSecond: 100 }, 10],
  [{ count: 100, bytes: 1000 }, { assetsPerSecond: 2, bytesPerSecond: 100 }, 50],
  // Only large files: none has ended yet.
  [{ count: 2, bytes: 1000 }, { assetsPerSecond: 0, bytesPerSecond: 100 }, 10],
  // The library declares no sizes.
  [{ count: 10, bytes: 0 }, { assetsPerSecond: 2, bytesPerSecond: 100 }, 5],
  [{ count: 10, bytes: 0 }, { assetsPerSecond: 0, bytesPerSecond: 100 }, null],
  [{ count: 10, bytes: 1000 }, { assetsPerSecond: 0, bytesPerSecond: 0 }, null],
])('for %j at %j, the time left is %s seconds', (outstanding, rate, seconds) => {
  expect(timeLeft(outstanding, rate)).toBe(seconds);
});
