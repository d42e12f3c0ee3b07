import { describe, expect, test } from 'vitest';
import { pollInterval } from '../../src/queue/poll-interval.ts';

const second = 1000;
const minute = 60 * second;
const options = { interval: 5 * minute, intervalActive: 30 * second };
const now = 1_000_000_000;
const intervalAfter = (quiet: number, settings = {}) =>
  pollInterval({ settings, newsAt: new Date(now - quiet) }, now, options);

describe('the interval between syncs', () => {
  test('the interval is short after new assets, and doubles every two minutes until it is the idle one', () => {
    const seen = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((minutes) => intervalAfter(minutes * minute).interval / second);
    expect(seen).toEqual([30, 30, 60, 60, 120, 120, 240, 240, 300, 300]);
    expect([intervalAfter(0).reason, intervalAfter(8 * minute).reason]).toEqual(['active', 'idle']);
  });

  test('a connection that never had news is idle', () => {
    expect(pollInterval({ settings: {}, newsAt: null }, now, options)).toEqual({
      interval: 5 * minute,
      reason: 'idle',
    });
  });

  test('an interval that was set for a connection is kept', () => {
    expect(intervalAfter(0, { syncInterval: 86_400_000 })).toEqual({ interval: 86_400_000, reason: 'set' });
  });

  test('an idle interval shorter than the active one is kept', () => {
    const quick = { interval: 10 * second, intervalActive: 30 * second };
    expect(pollInterval({ settings: {}, newsAt: new Date(now) }, now, quick)).toEqual({
      interval: 10_000,
      reason: 'idle',
    });
  });
});

test('in a day of 1,000 connections with bursts, active ones are fresh within 45 s, with at most 1.5 times the syncs', () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 16_807) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const day = 24 * 60 * minute;
  const delays: number[] = [];
  let syncs = 0;
  for (let connection = 0; connection < 1000; connection++) {
    const uploads: { at: number; active: boolean }[] = [];
    for (let burst = Math.floor(random() * 10); burst > 0; burst--) {
      let at = (8 + random() * 9) * 60 * minute;
      for (let count = 2 + Math.floor(random() * 15), first = true; count > 0; count--, first = false) {
        uploads.push({ at, active: !first });
        at += -Math.log(1 - random()) * 20 * second;
      }
    }
    uploads.sort((a, b) => a.at - b.at);
    let newsAt: Date | null = null;
    let found = 0;
    const offset = random() * options.interval;
    for (let at = offset; at < day; ) {
      syncs++;
      for (; uploads[found] && uploads[found]!.at <= at; found++) {
        // While its connection polls at the idle interval, an upload is not yet one of an active connection.
        if (uploads[found]!.active && newsAt && uploads[found]!.at > newsAt.getTime())
          delays.push(at - uploads[found]!.at);
        newsAt = new Date(at);
      }
      at += pollInterval({ settings: {}, newsAt }, at, options).interval;
    }
  }
  delays.sort((a, b) => a - b);
  // A new asset takes a few seconds more until it is in the bucket.
  expect(delays[Math.floor(delays.length * 0.99)]).toBeLessThan(40 * second);
  expect(delays.length).toBeGreaterThan(5000);
  expect(syncs / (1000 * (day / options.interval))).toBeLessThan(1.5);
});
