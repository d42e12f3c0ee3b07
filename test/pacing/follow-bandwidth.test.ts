import { expect, test, vi } from 'vitest';
import { followBandwidth } from '../../src/pacing/follow-bandwidth.ts';
import { createConnectionThrottles, createTraffic } from '../../src/source/bandwidth.ts';
import { openStore } from '../../src/store/store.ts';
import { consented, newStore, silent } from '../store/records.ts';
import { until } from '../support/until.ts';

const MiB = 2 ** 20;

test('a bandwidth limit that is set replaces that of each process, also after restarts, until it is removed', async () => {
  const one = await newStore();
  const other = await openStore({ url: one.url, log: silent });
  const stops: (() => void)[] = [];
  const start = (store: typeof other, own: number | undefined) => {
    const traffic = createTraffic(own ?? null);
    stops.push(followBandwidth({ store, traffic, throttles: createConnectionThrottles(), own, log: silent }));
    return traffic;
  };
  try {
    const [first, second] = [start(one.store, 5 * MiB), start(other, undefined)];
    await one.store.settings.setBandwidth(20 * MiB);
    for (const traffic of [first, second]) await until('the limit', () => traffic.limit === 20 * MiB);
    const third = start(other, 5 * MiB);
    await until('the limit that was set before', () => third.limit === 20 * MiB);
    await other.settings.setBandwidth(null);
    for (const traffic of [first, third]) await until('its own', () => traffic.limit === 5 * MiB);
    await until('none', () => second.limit === undefined);
  } finally {
    for (const stop of stops) stop();
    await other.close();
    await one.close();
  }
});

test('the bandwidth limit of a connection reaches every process, and no other connection', async () => {
  const one = await newStore();
  const other = await openStore({ url: one.url, log: silent });
  const stops: (() => void)[] = [];
  try {
    const all = [one.store, other].map((store) => {
      const throttles = createConnectionThrottles();
      stops.push(followBandwidth({ store, traffic: createTraffic(null), throttles, own: undefined, log: silent }));
      return throttles;
    });
    const [limited, free] = [
      await one.store.connections.connect(consented()),
      await other.connections.connect(consented()),
    ];
    for (const bandwidth of [20 * MiB, MiB, undefined]) {
      const settings = bandwidth === undefined ? {} : { bandwidth };
      await other.connections.changeSettings(limited.id, {}, () => ({ settings, applyFilters: false }));
      for (const throttles of all) {
        await until('the limit', () => throttles.limitOf(limited.id) === bandwidth);
        expect(throttles.limitOf(free.id)).toBeUndefined();
      }
    }
  } finally {
    for (const stop of stops) stop();
    await other.close();
    await one.close();
  }
});

test('a timetable changes the limit of a process and of a connection within seconds, and is not read again for that', {
  tags: 'slow',
}, async () => {
  const one = await newStore();
  const throttles = createConnectionThrottles();
  const traffic = createTraffic(null);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2026-01-05T07:59:59Z') });
  const own = '08:00-09:00 1MiB/s, else 2MiB/s';
  const stop = followBandwidth({ store: one.store, traffic, throttles, own, log: silent });
  try {
    const { id } = await one.store.connections.connect(consented());
    const settings = { bandwidth: 'Mon 08:00-10:00 3MiB/s, Mon 10:00-11:00 unlimited, else 4MiB/s Europe/London' };
    await one.store.connections.changeSettings(id, {}, () => ({ settings, applyFilters: false }));
    await until('the limits before', () => traffic.limit === 2 * MiB && throttles.limitOf(id) === 4 * MiB);
    await one.close();
    for (const [time, limit, ofConnection] of [
      ['2026-01-05T08:00:00Z', MiB, 3 * MiB],
      ['2026-01-05T09:00:00Z', 2 * MiB, 3 * MiB],
      ['2026-01-05T10:00:00Z', 2 * MiB, undefined],
    ] as const) {
      vi.setSystemTime(Date.parse(time));
      await until(time, () => traffic.limit === limit && throttles.limitOf(id) === ofConnection);
    }
  } finally {
    vi.useRealTimers();
    stop();
    await one.close().catch(() => {});
  }
});
