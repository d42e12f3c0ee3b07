import { expect, test, vi } from 'vitest';
import { Interrupted, LeaseLost } from '../../src/floor/errors.ts';
import { bothClocks, keepLease } from '../../src/floor/keep-lease.ts';

const { signal: stop } = new AbortController();

test('a lease that cannot be renewed is lost before it ends, because another process may have it then', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setTimeout', 'performance'] });
  const lease = keepLease('the work', {
    leaseMs: 4000,
    stop,
    since: bothClocks(),
    renew: () => Promise.reject(new Error('no database')),
  });
  await vi.advanceTimersByTimeAsync(2900);
  expect(lease.signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1000);
  expect(lease.signal.aborted).toBe(true);
  expect(lease.signal.reason).toBeInstanceOf(LeaseLost);
  lease.end();
  vi.useRealTimers();
});

test('a lease survives renewals that fail, as long as one succeeds in time', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  let calls = 0;
  const lease = keepLease('the work', {
    leaseMs: 4000,
    stop,
    since: bothClocks(),
    renew: () => (++calls % 3 === 0 ? Promise.resolve(true) : Promise.reject(new Error('no database'))),
  });
  await vi.advanceTimersByTimeAsync(20_000);
  expect(calls).toBe(20);
  expect(lease.signal.aborted).toBe(false);
  lease.end();
  vi.useRealTimers();
});

test('a fence asks the database only if the lease may have ended, also while the machine slept', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  let calls = 0;
  let isOurs = true;
  const lease = keepLease('the work', {
    leaseMs: 60_000,
    stop,
    since: bothClocks(),
    async renew() {
      calls++;
      return isOurs;
    },
  });
  await lease.fence();
  expect(calls).toBe(0);
  vi.setSystemTime(Date.now() + 61_000);
  await lease.fence();
  expect(calls).toBe(1);
  vi.setSystemTime(Date.now() + 61_000);
  isOurs = false;
  await expect(lease.fence()).rejects.toThrow(LeaseLost);
  lease.end();
  vi.useRealTimers();
});

test('a lease that another process has taken over is lost at once', async () => {
  const lease = keepLease('the work', { leaseMs: 60_000, stop, since: bothClocks(), renew: async () => false });
  await lease.check();
  expect(lease.signal.aborted).toBe(true);
  lease.end();
});

test('a lease counts from its request: a process that was suspended before the answer works on nothing that others may have', async () => {
  const since = bothClocks();
  since.monotonic -= 61_000;
  const renew = () => Promise.reject(new Error('no database'));
  const lease = keepLease('the work', { leaseMs: 60_000, stop, since, renew });
  await expect(lease.fence()).rejects.toThrow(LeaseLost);
  lease.end();
});

test('work under a lease ends when the process stops', async () => {
  const stopping = new AbortController();
  const renew = async () => true;
  const before = keepLease('the work', { leaseMs: 60_000, stop: stopping.signal, since: bothClocks(), renew });
  stopping.abort(new Interrupted('shutting down'));
  const after = keepLease('the work', { leaseMs: 60_000, stop: stopping.signal, since: bothClocks(), renew });
  for (const lease of [before, after]) {
    expect(lease.signal.reason).toBe(stopping.signal.reason);
    await expect(lease.fence()).rejects.toThrow('shutting down');
    lease.end();
  }
});
