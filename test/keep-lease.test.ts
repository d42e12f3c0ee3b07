import { expect, test } from 'vitest';
import { LeaseLost } from '../src/errors.ts';
import { keepLease } from '../src/keep-lease.ts';
import { until } from './support/until.ts';

test('a lease that could not be renewed in time is lost, because another process may have it', async () => {
  const began = performance.now();
  const lease = keepLease('the work', 400, () => Promise.reject(new Error('no database')));
  await lease.check();
  expect(lease.lost.aborted).toBe(false);
  await until('the lease to be lost', async () => lease.lost.aborted);
  expect(performance.now() - began).toBeGreaterThanOrEqual(400);
  expect(lease.lost.reason).toBeInstanceOf(LeaseLost);
  lease.end();
});

test('a lease survives renewals that fail, as long as one succeeds in time', async () => {
  let calls = 0;
  const lease = keepLease('the work', 400, () =>
    ++calls % 2 === 0 ? Promise.resolve(true) : Promise.reject(new Error('no database')),
  );
  await until('many renewals', async () => calls > 12);
  expect(lease.lost.aborted).toBe(false);
  lease.end();
});

test('a lease that another process has taken over is lost at once', async () => {
  const lease = keepLease('the work', 60_000, async () => false);
  await lease.check();
  expect(lease.lost.aborted).toBe(true);
  lease.end();
});
