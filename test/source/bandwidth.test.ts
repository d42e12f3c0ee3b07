import { expect, test } from 'vitest';
import { type Clock, createConnectionThrottles, createThrottle } from '../../src/source/bandwidth.ts';

const MiB = 2 ** 20;
const { signal } = new AbortController();

/** A clock that stops until all callers wait, and then moves to the first due one, late by `lateness`. */
function virtualClock(lateness: () => number = () => 0) {
  let now = 0;
  const sleepers: { at: number; wake: () => void }[] = [];
  const clock: Clock = {
    now: () => now,
    sleep: (ms) =>
      new Promise((wake) => {
        sleepers.push({ at: now + ms + lateness(), wake: () => wake(undefined) });
      }),
  };
  return {
    clock,
    get now() {
      return now;
    },
    async runUntil(end: number) {
      for (;;) {
        // Callers that were just woken must wait again first.
        await new Promise((resolve) => setImmediate(resolve));
        sleepers.sort((a, b) => a.at - b.at);
        if (!sleepers[0] || sleepers[0].at > end) break;
        now = Math.max(now, sleepers[0].at);
        sleepers.shift()!.wake();
      }
      now = end;
    },
  };
}

/** Bodies from a source that is faster than any limit, with chunks of different sizes. */
function bodies(throttle: ReturnType<typeof createThrottle>, chunks: number[]) {
  const state = { bytes: 0, stop: false };
  for (const chunk of chunks) {
    void (async () => {
      while (!state.stop) {
        state.bytes += chunk;
        await throttle.take(chunk, signal);
      }
    })();
  }
  return state;
}

const many = Array.from({ length: 32 }, (_, i) => 1000 + 2000 * i);

test.each([
  ['one body', [65_536], 2],
  ['one body', [65_536], 20],
  ['small files and the parts of large ones', many, 2],
  ['small files and the parts of large ones', many, 20],
])('%s (%#) keep to the bandwidth limit within 5 %', async (_, chunks, mib) => {
  for (const [name, lateness] of [
    ['on time', () => 0],
    ['on a busy machine', seeded((random) => random * 60)],
    ['on one that stands still now and then', seeded((random) => (random > 0.98 ? 300 : 2))],
  ] as const) {
    const time = virtualClock(lateness);
    const throttle = createThrottle(mib * MiB, time.clock);
    const moved = bodies(throttle, chunks);
    // The first chunk of each does not matter in the long run.
    await time.runUntil(1000);
    const before = moved.bytes;
    await time.runUntil(11_000);
    moved.stop = true;
    const perSecond = (moved.bytes - before) / 10;
    expect(Math.abs(perSecond / (mib * MiB) - 1), `${name}: ${perSecond / MiB} MiB/s`).toBeLessThan(0.05);
  }
});

test('the bandwidth limit can be changed, removed and set again while downloads wait', async () => {
  const time = virtualClock();
  const throttle = createThrottle(1000, time.clock);
  const moved = bodies(throttle, [64_000, 32_000, 5000]);
  await time.runUntil(10_000);
  for (const mib of [2, 20, 1]) {
    throttle.setLimit(mib * MiB);
    // Waiting callers notice it soon.
    await time.runUntil(time.now + 2000);
    const before = moved.bytes;
    await time.runUntil(time.now + 10_000);
    expect(Math.abs((moved.bytes - before) / 10 / (mib * MiB) - 1)).toBeLessThan(0.05);
  }
  moved.stop = true;
  throttle.setLimit(undefined);
  await time.runUntil(time.now + 1000);
  expect(throttle.take(1e12, signal)).toBeUndefined();
  throttle.setLimit(MiB);
  expect(throttle.take(1000, signal)).toBeUndefined();
  expect(throttle.take(MiB, signal)).toBeInstanceOf(Promise);
});

test('a pause of a download is not followed by a burst', async () => {
  const time = virtualClock();
  const throttle = createThrottle(1_000_000, time.clock);
  void throttle.take(200_000, signal);
  await time.runUntil(60_000);
  let gone = false;
  void throttle.take(300_000, signal)?.then(() => {
    gone = true;
  });
  await time.runUntil(60_190);
  expect(gone).toBe(false);
  await time.runUntil(60_210);
  expect(gone).toBe(true);
});

test('downloads are not faster than the bandwidth limit by the real clock', async () => {
  const throttle = createThrottle(1_000_000);
  const started = performance.now();
  await Promise.all(
    [10_000, 40_000, 5_000].map(async (chunk) => {
      for (let sent = 0; sent < 200_000; sent += chunk) await throttle.take(chunk, signal);
    }),
  );
  // 600,000 bytes at this rate take 600 ms, less the slack.
  expect(performance.now() - started).toBeGreaterThanOrEqual(490);
});

test('a download that waits for bandwidth can be aborted', async () => {
  const throttle = createThrottle(1000);
  const stop = new AbortController();
  const waiting = throttle.take(1_000_000, stop.signal);
  stop.abort(new Error('shutting down'));
  await expect(waiting).rejects.toThrow();
});

test('connections keep to their own bandwidth limits within 5 %, also when these change', async () => {
  const time = virtualClock();
  const [process, lines] = [createThrottle(10 * MiB, time.clock), createConnectionThrottles(time.clock)];
  lines.setLimits(
    new Map([
      ['slow', MiB],
      ['fast', 4 * MiB],
    ]),
  );
  const of = (connection: string) => {
    const line = lines.of(connection);
    return bodies(
      {
        async take(bytes: number, signal: AbortSignal) {
          await line(bytes, signal);
          await process.take(bytes, signal);
        },
      } as never,
      [16_000, 65_536, 5000],
    );
  };
  const moved = { slow: of('slow'), fast: of('fast'), free: of('free') };
  const rates = async () => {
    await time.runUntil(time.now + 2000);
    const before = Object.values(moved).map(({ bytes }) => bytes);
    await time.runUntil(time.now + 10_000);
    return Object.values(moved).map(({ bytes }, i) => (bytes - before[i]!) / 10 / MiB);
  };
  const near = (found: number, mib: number) =>
    expect(Math.abs(found / mib - 1), `${found} of ${mib} MiB/s`).toBeLessThan(0.05);
  let [slow, fast, free] = (await rates()) as [number, number, number];
  near(slow, 1);
  near(slow + fast + free, 10);
  lines.setLimits(
    new Map([
      ['slow', 2 * MiB],
      ['free', MiB],
    ]),
  );
  [slow, fast, free] = (await rates()) as [number, number, number];
  near(slow, 2);
  near(free, 1);
  near(fast, 7);
  for (const state of Object.values(moved)) state.stop = true;
});

test('without a bandwidth limit no download waits', () => {
  expect(createThrottle(undefined).take(1e12, signal)).toBeUndefined();
});

/** The same numbers in every run. */
function seeded(of: (random: number) => number): () => number {
  let state = 1;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return of(state / 2_147_483_647);
  };
}
