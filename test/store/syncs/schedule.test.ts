import { afterAll, expect, test } from 'vitest';
import { why } from '../../support/reasons.ts';
import { consented, leaseTo, newStoreAndClient } from '../records.ts';

const opened = await newStoreAndClient();
const { store, client } = opened;
afterAll(() => opened.close());

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const intervals = { interval: 5 * minute, intervalActive: 30 * second, reconcileInterval: 24 * hour };

const due = (own = intervals) => store.syncs.requestDue(own, 1000);

async function connected(count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i++) ids.push((await store.connections.connect(consented())).id);
  return ids;
}
/** As if the last scheduled syncs had been requested that long ago. */
const lastRequested = (ids: string[], { sync, full }: { sync: number; full: number }) =>
  client.query(
    `UPDATE connections SET scheduled_sync_at = now() - $2 * interval '1 ms', scheduled_full_at = now() - $3 * interval '1 ms'
     WHERE id = ANY($1)`,
    [ids, sync, full],
  );
const waiting = async (connectionId: string) =>
  (await store.syncs.search({ connectionId, limit: 10 })).map(({ mode, status, scope }) => ({ mode, status, scope }));
const nobody = () => client.query("UPDATE connections SET status = 'paused'");

test('each due connection is requested once, by whichever process comes first', async () => {
  await nobody();
  // So rare that no moment comes during the test.
  const rare = { ...intervals, interval: 30 * 24 * hour, reconcileInterval: 30 * 24 * hour };
  const ids = await connected(20);
  const late = ids.slice(0, 15);
  await lastRequested(late, { sync: 30 * 24 * hour, full: 0 });
  const found = await Promise.all(Array.from({ length: 5 }, () => due(rare)));
  // Another process may hold the row of one at this moment.
  found.push(await due(rare));
  expect(found.flat().sort()).toEqual(late.toSorted());
  for (const id of late) expect(await waiting(id)).toEqual([{ mode: 'incremental', status: 'waiting', scope: {} }]);
  expect(await due(rare)).toEqual([]);
});

test('those that have waited longest are requested first', async () => {
  await nobody();
  const ids = await connected(4);
  for (const [i, id] of ids.entries()) await lastRequested([id], { sync: (2 + i) * 5 * minute, full: 0 });
  expect((await store.syncs.requestDue(intervals, 2)).sort()).toEqual(ids.slice(2).sort());
});

test('if both are due, one full sync is requested, also in place of a waiting incremental one', async () => {
  await nobody();
  const [both, asked] = (await connected(2)) as [string, string];
  await store.syncs.request(asked, 'incremental');
  await lastRequested([both, asked], { sync: 24 * hour, full: 24 * hour });
  expect((await due()).sort()).toEqual([both, asked].sort());
  for (const id of [both, asked]) expect(await waiting(id)).toEqual([{ mode: 'full', status: 'waiting', scope: {} }]);
});

test('while a sync runs, one more waits at most', async () => {
  await nobody();
  const [id] = (await connected(1)) as [string];
  await store.syncs.request(id, 'full');
  await store.syncs.takeNext(leaseTo(id, 'owner'));
  for (let i = 0; i < 3; i++) {
    await lastRequested([id], { sync: 5 * minute, full: 0 });
    expect(await due()).toEqual([id]);
  }
  expect((await waiting(id)).map(({ status }) => status).sort()).toEqual(['running', 'waiting']);
});

test('connections that are paused or disconnected are not requested, and catch up with a full sync that they missed', async () => {
  await nobody();
  const [paused, ended] = (await connected(2)) as [string, string];
  await lastRequested([paused, ended], { sync: 24 * hour, full: 24 * hour });
  await store.connections.pause(paused);
  const { userId } = (await store.connections.end(ended, why))!;
  expect(await due()).toEqual([]);
  await store.connections.resume(paused);
  await store.connections.connect(consented(userId));
  expect((await due()).sort()).toEqual([paused, ended].sort());
  for (const id of [paused, ended]) expect(await waiting(id)).toEqual([{ mode: 'full', status: 'waiting', scope: {} }]);
});

test('each connection has its own moment in the interval', async () => {
  const ids = await connected(50);
  const schedules = await store.connections.schedules(ids, intervals);
  const moments = schedules.map(({ next }) => next.getTime() % intervals.interval);
  expect(new Set(moments).size).toBeGreaterThan(40);
  const tenths = new Set(moments.map((moment) => Math.floor((10 * moment) / intervals.interval)));
  expect(tenths.size).toBeGreaterThan(5);
  for (const { next } of schedules) {
    expect(next.getTime()).toBeGreaterThan(Date.now() - minute);
    expect(next.getTime()).toBeLessThanOrEqual(Date.now() + intervals.interval + minute);
  }
});

test('a sync is requested at the moment that was named', async () => {
  await nobody();
  const [id] = (await connected(1)) as [string];
  const tenth = { ...intervals, interval: 100, intervalActive: 100 };
  const { next } = (await store.connections.schedules([id], tenth))[0]!;
  for (;;) {
    const before = await store.now();
    const found = await due(tenth);
    if (before >= next.getTime()) expect(found).toEqual([id]);
    if ((await store.now()) < next.getTime()) expect(found).toEqual([]);
    if (found.length > 0) break;
  }
});

/** The interval of a connection so long after its last news; null: it never had any. */
async function intervalAfter(quiet: number | null, settings = {}, own = intervals) {
  const [id] = (await connected(1)) as [string];
  await client.query(
    "UPDATE connections SET settings = $2, news_at = now() - ($3::float8 + 100) * interval '1 ms' WHERE id = $1",
    [id, settings, quiet],
  );
  const { interval, reason } = (await store.connections.schedules([id], own))[0]!;
  return { interval, reason };
}

test('the interval is short after new assets, and doubles every two minutes until it is the idle one', async () => {
  const seen = [];
  for (let quiet = 0; quiet < 10; quiet++) seen.push((await intervalAfter(quiet * minute)).interval / second);
  expect(seen).toEqual([30, 30, 60, 60, 120, 120, 240, 240, 300, 300]);
  expect((await intervalAfter(0)).reason).toBe('active');
  expect((await intervalAfter(8 * minute)).reason).toBe('idle');
  // While a clock is being set, news may be of the future.
  expect((await intervalAfter(-10 * minute)).interval).toBe(30 * second);
});

test('a connection that never had news, or long ago, is idle', async () => {
  for (const quiet of [null, 10 * 365 * 24 * hour])
    expect(await intervalAfter(quiet)).toEqual({ interval: 5 * minute, reason: 'idle' });
});

test('an interval that was set for a connection is kept', async () => {
  expect(await intervalAfter(0, { syncInterval: 24 * hour })).toEqual({ interval: 24 * hour, reason: 'set' });
});

test('an idle interval shorter than the active one is kept', async () => {
  const quick = { ...intervals, interval: 10 * second };
  expect(await intervalAfter(0, {}, quick)).toEqual({ interval: 10 * second, reason: 'idle' });
});

test('in a day of 1,000 connections with bursts, active ones are fresh within 45 s, with at most 1.5 times the syncs', async () => {
  // The interval changes with whole minutes of quiet only.
  const byMinute: number[] = [];
  for (let quiet = 0; quiet <= 10; quiet++) byMinute.push((await intervalAfter(quiet * minute)).interval);
  const intervalOf = (quiet: number) => byMinute[Math.min(10, Math.floor(quiet / minute))]!;
  let seed = 7;
  const random = () => {
    seed = (seed * 16_807) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const day = 24 * hour;
  const delays: number[] = [];
  let syncs = 0;
  for (let connection = 0; connection < 1000; connection++) {
    const uploads: { at: number; active: boolean }[] = [];
    for (let burst = Math.floor(random() * 10); burst > 0; burst--) {
      let at = (8 + random() * 9) * hour;
      for (let count = 2 + Math.floor(random() * 15), first = true; count > 0; count--, first = false) {
        uploads.push({ at, active: !first });
        at += -Math.log(1 - random()) * 20 * second;
      }
    }
    uploads.sort((a, b) => a.at - b.at);
    let newsAt = Number.NEGATIVE_INFINITY;
    let found = 0;
    for (let at = random() * intervals.interval; at < day; ) {
      syncs++;
      for (; uploads[found] && uploads[found]!.at <= at; found++) {
        // While its connection polls at the idle interval, an upload is not yet one of an active connection.
        if (uploads[found]!.active && uploads[found]!.at > newsAt && newsAt > 0) delays.push(at - uploads[found]!.at);
        newsAt = at;
      }
      at += intervalOf(at - newsAt);
    }
  }
  delays.sort((a, b) => a - b);
  // A new asset takes a few seconds more until it is in the bucket.
  expect(delays[Math.floor(delays.length * 0.99)]).toBeLessThan(40 * second);
  expect(delays.length).toBeGreaterThan(5000);
  expect(syncs / (1000 * (day / intervals.interval))).toBeLessThan(1.5);
});
