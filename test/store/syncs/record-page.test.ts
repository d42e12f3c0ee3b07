import { randomBytes, randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { LeaseLost } from '../../../src/floor/errors.ts';
import type { Reason } from '../../../src/floor/reasons.ts';
import { leaseOf } from '../../../src/store/assets/leases.ts';
import type { ListedAsset } from '../../../src/store/database/schema.ts';
import { hashOf } from '../../../src/store/removals/tombstones.ts';
import type { TakenSync } from '../../../src/store/syncs/take-lease.ts';
import type { Decide } from '../../../src/store/syncs/write-assets.ts';
import { ask } from '../../support/database.ts';
import { mirroredAlone as found } from '../../support/mirrored.ts';
import { until } from '../../support/until.ts';
import { consented, leaseTo, listed, newStore, running } from '../records.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

const why: Reason = { code: 'error', text: 'why' };
const pending = { state: 'pending', reason: null, reset: true, due: true } as const;
/** New assets are pending, and every change is one of the name. */
const decide: Decide = (before, asset) => (before === undefined || before.name !== asset.name ? pending : undefined);

type Run = Awaited<ReturnType<typeof running>>;
const record = (run: Run, companyId: string, assets: ListedAsset[], more: { highWaterMark?: number | null } = {}) =>
  store.syncs.recordPage({ ...run, companyId, assets, decide, position: { cursor: 'next' }, ...more });
const ids = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`);

test('a page distinguishes new, changed and known assets', async () => {
  const run = await running(store, 'a');
  const [one, two, three] = ids('known', 3) as [string, string, string];
  expect(await record(run, 'a', [listed(one), listed(two)])).toMatchObject({ new: 2, changed: 0, again: 0 });
  const renamed = { name: 'renamed', size: 9, listed: { id: two, title: 'renamed' } };
  const page = [listed(one), listed(two, renamed), listed(three)];
  expect(await record(run, 'a', page)).toMatchObject({ new: 1, changed: 1, again: 0 });
  expect(await record(run, 'a', page)).toMatchObject({ new: 0, changed: 0, again: 0 });
  expect(await record(run, 'a', [])).toMatchObject({ new: 0, changed: 0, again: 0 });
  expect(await store.assets.get(two)).toMatchObject({ name: 'renamed', size: 9, attempts: 0 });
  expect(await store.syncs.get(run.sync.id)).toMatchObject({
    pages: 4,
    seen: 8,
    new: 3,
    changed: 1,
    position: { a: { cursor: 'next' } },
  });
});

test('an unchanged asset that is only fetched again is not counted as changed', async () => {
  const run = await running(store, 'again');
  const always: Decide = () => pending;
  const page = { ...run, companyId: 'again', decide: always, position: {} };
  const [same, other] = ids('again', 2) as [string, string];
  await store.syncs.recordPage({ ...page, assets: [listed(same), listed(other)] });
  const assets = [listed(same), listed(other, { listed: { id: other, title: 'another' } })];
  expect(await store.syncs.recordPage({ ...page, assets })).toMatchObject({ new: 0, changed: 1, again: 1 });
  expect(await store.syncs.get(run.sync.id)).toMatchObject({ seen: 4, new: 2, changed: 1 });
});

test('if a page lists an asset twice, the last entry is recorded', async () => {
  const run = await running(store, 'b');
  const id = 'twice';
  expect(await record(run, 'b', [listed(id, { name: 'first' }), listed(id, { name: 'last' })])).toMatchObject({
    new: 1,
    changed: 0,
    again: 0,
  });
  expect(await store.assets.get(id)).toMatchObject({ name: 'last' });
});

test('an asset whose erasure ends while its page waits for it is not recorded again', async () => {
  const run = await running(store, 'erased');
  await record(run, 'erased', [listed('erased')]);
  const client = new pg.Client({ connectionString: opened.url });
  await client.connect();
  try {
    await client.query('BEGIN');
    await client.query(`DELETE FROM assets WHERE id = 'erased'`);
    await client.query(
      `INSERT INTO tombstones (hash, erased_at, erased_by, reason) VALUES ($1, now(), 'ada', 'as a test')`,
      [hashOf('erased')],
    );
    const page = record(run, 'erased', [listed('erased'), listed('not erased')]);
    await until('the page to wait for the asset', async () => {
      const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      return (await ask(opened.url, waiting)).length > 0;
    });
    await client.query('COMMIT');
    expect(await page).toMatchObject({ new: 1, changed: 0, again: 0 });
  } finally {
    await client.end();
  }
  expect(await store.assets.get('erased')).toBeUndefined();
  expect(await store.assets.get('not erased')).toMatchObject({ state: 'pending' });
});

test('an asset that the database refuses gets a problem, and the rest of the page is recorded', async () => {
  const run = await running(store, 'refused');
  // Longer than an index takes, and no database can compress it.
  const long = randomBytes(3000).toString('hex');
  const [one, two, known, three] = ids('refused', 4) as [string, string, string, string];
  const byProblem: Decide = (before, asset) => {
    if (asset.problem === undefined) return decide(before, asset, {});
    const reason: Reason = { code: 'unreadable_listing', problem: asset.problem };
    return { state: before?.state ?? 'failed', reason, reset: false, due: false };
  };
  const page = (assets: ListedAsset[]) =>
    store.syncs.recordPage({
      ...run,
      companyId: 'refused',
      assets,
      decide: byProblem,
      position: { cursor: 'behind' },
      highWaterMark: 9,
    });
  await page([listed(known)]);
  const bad = { name: 'another', projectId: long };
  const written = await page([listed(one), listed(two, bad), listed(long), listed(known, bad), listed(three)]);
  expect(written).toMatchObject({ new: 3, changed: 1 });
  const refusal = expect.stringMatching(/^cannot be recorded: index row (size|requires)/);
  expect(written.refused).toEqual([two, long, known].map((id) => ({ id, problem: refusal })));
  expect(await store.assets.get(one)).toMatchObject({ state: 'pending' });
  expect(await store.assets.get(two)).toMatchObject({ state: 'failed', reason: { problem: refusal }, projectId: null });
  expect(await store.assets.get(known)).toMatchObject({
    state: 'pending',
    reason: { problem: refusal },
    name: `name of ${known}`,
  });
  expect(await store.assets.get(three)).toMatchObject({ state: 'pending' });
  expect(await store.assets.get(long)).toBeUndefined();
  expect(await store.syncs.get(run.sync.id)).toMatchObject({
    pages: 2,
    seen: 6,
    new: 4,
    position: { refused: { cursor: 'behind' } },
  });
  // Once it can be written, it is.
  await page([listed(two, { name: 'another' })]);
  expect(await store.assets.get(two)).toMatchObject({ state: 'pending', reason: null, name: 'another' });
});

test('the high-water mark moves with the last page, and never back', async () => {
  const run = await running(store, 'c');
  const mark = async () => (await store.connections.companies([run.connectionId]))[0]?.highWaterMark;
  await record(run, 'c', [listed('marked')]);
  expect(await mark()).toBeNull();
  for (const [given, kept] of [
    [null, null],
    [1000, 1000],
    [500, 1000],
    [null, 1000],
    [2000, 2000],
  ] as const) {
    await record(run, 'c', [], { highWaterMark: given });
    expect(await mark()).toBe(kept);
  }
});

test('odd characters and large numbers are stored unchanged', async () => {
  const run = await running(store, 'd');
  const odd = `"O'Neil" \\ \n\t {}[] $1 %s 東京 🎬 \u202e`;
  const asset = listed(`odd ${odd}`, {
    name: odd,
    projectId: odd,
    assetType: odd,
    size: Number.MAX_SAFE_INTEGER,
    uploadDate: -62_135_596_800_000,
    listed: { [odd]: [odd, null, 1.5, { deep: odd }] },
  });
  await record(run, 'd', [asset]);
  expect(await store.assets.get(asset.id)).toMatchObject(asset);
});

test('a sync that has lost its lease writes nothing', async () => {
  const run = await running(store, 'e');
  await store.syncs.release(run.lease);
  const next = await store.syncs.takeNext(leaseTo(run.connectionId, 'next'));
  expect(next).toMatchObject({ id: run.sync.id, status: 'running' });
  await expect(record(run, 'e', [listed('late')], { highWaterMark: 5 })).rejects.toThrow(LeaseLost);
  await store.syncs.finish(run.sync, run.lease, { status: 'failed', error: 'late' });
  expect(await store.assets.get('late')).toBeUndefined();
  expect(await store.syncs.get(run.sync.id)).toMatchObject({ status: 'running', pages: 0, error: null });
  expect(await store.syncs.takeNext(leaseTo(run.connectionId, 'third'))).toBe('busy');
});

test('one process takes a sync, and another takes it over when its lease has expired', async () => {
  const run = await running(store, 'f');
  await store.syncs.renew({ ...run.lease, leaseMs: 1 });
  const taken = await until('the lease to run out', async () => {
    const all = await Promise.all(
      ids('owner', 10).map((owner) => store.syncs.takeNext(leaseTo(run.connectionId, owner))),
    );
    const mine = all.filter((sync) => sync !== 'busy');
    return mine.length > 0 && mine;
  });
  expect(taken).toMatchObject([{ id: run.sync.id }]);
});

test('requests during a running sync share the next one', async () => {
  const run = await running(store, 'g');
  const ask = () => store.syncs.request(run.connectionId, 'incremental');
  const asked = new Set(await Promise.all(Array.from({ length: 20 }, ask)));
  expect(asked.size).toBe(1);
  expect(asked).not.toContain(run.sync.id);
  const other = await store.syncs.request(run.connectionId, 'incremental', { since: 5 });
  expect(asked).not.toContain(other);
  await store.syncs.finish(run.sync, run.lease, { status: 'done', error: null });
  expect(await store.syncs.takeNext(run.lease)).toMatchObject({ id: [...asked][0] });
});

test('a sync that is requested and taken at once is one sync, and is refused while another waits or runs', async () => {
  const { connectionId, lease, sync } = await running(store, 'j');
  const begin = (who: string) => store.syncs.begin(leaseTo(connectionId, who), 'incremental');
  expect(await begin('while one runs')).toBeUndefined();
  const next = await store.syncs.request(connectionId, 'full');
  expect(await store.syncs.finish(sync, lease, { status: 'done', error: null })).toMatchObject({ more: true });
  await store.syncs.release(lease);
  expect(await begin('while one waits')).toBeUndefined();
  const full = (await store.syncs.takeNext(lease)) as TakenSync;
  expect(full).toMatchObject({ id: next, mode: 'full' });
  expect(await store.syncs.finish(full, lease, { status: 'done', error: null })).toMatchObject({ more: false });

  const begun = (await Promise.all(ids('who', 10).map(begin))).filter((run) => run !== undefined);
  expect(begun).toMatchObject([{ connectionId, mode: 'incremental', status: 'running', scope: {}, settings: {} }]);
  await store.connections.pause(connectionId);
  expect(await begin('while it is paused')).toBeUndefined();
});

test('a sync does not end twice, even if the lease is kept for a waiting one', async () => {
  const { connectionId, lease, sync } = await running(store, 'twice ended');
  await store.syncs.request(connectionId, 'full');
  expect(await store.syncs.finish(sync, lease, { status: 'done', error: null })).toMatchObject({ more: true });
  expect(await store.syncs.finish(sync, lease, { status: 'failed', error: 'no answer' })).toBeUndefined();
  expect(await store.syncs.get(sync.id)).toMatchObject({ status: 'done', error: null });
  expect(await store.connections.get(connectionId)).toMatchObject({ lastError: null });
});

test('the first sync after a reconnect clears an earlier failure', async () => {
  const grant = consented('who reconnects');
  const { id } = await store.connections.connect(grant);
  const run = async (mode: 'full' | 'incremental', outcome: { status: 'done' | 'failed'; error: string | null }) => {
    await store.syncs.request(id, mode);
    const sync = (await store.syncs.takeNext(leaseTo(id, 'owner'))) as TakenSync;
    await store.syncs.finish(sync, leaseTo(id, 'owner'), outcome);
    return (await store.connections.get(id))!.lastError;
  };
  const done = { status: 'done', error: null } as const;
  expect(await run('full', { status: 'failed', error: 'the grant has ended' })).toBe('the grant has ended');
  expect(await run('incremental', done)).toBe('the grant has ended');
  await store.connections.connect(grant);
  expect(await run('incremental', done)).toBeNull();
});

test('a request at the moment when a sync ends is not lost', { tags: 'slow' }, async () => {
  const { connectionId, lease, sync } = await running(store, 'h');
  await store.syncs.finish(sync, lease, { status: 'done', error: null });
  expect(await store.syncs.takeNext(lease)).toBeUndefined();
  for (let round = 0; round < 50; round++) {
    // A requester checks for a waiting sync; a running process checks again before it ends.
    const come = async (who: string) => {
      for (;;) {
        const next = await store.syncs.takeNext(leaseTo(connectionId, who));
        if (next === 'busy' || next === undefined) return;
        await store.syncs.finish(next, leaseTo(connectionId, who), { status: 'done', error: null });
      }
    };
    const asked = await Promise.all(
      ids(`round ${round}`, 3).map(async (who) => {
        const id = (await store.syncs.request(connectionId, 'incremental'))!;
        await come(who);
        return id;
      }),
    );
    for (const id of asked) expect(await store.syncs.get(id)).toMatchObject({ status: 'done' });
  }
});

test('syncs of the same page, a connection that comes and goes, workers and the dispatcher do not deadlock', {
  tags: 'slow',
}, async () => {
  const company = `company-${randomUUID()}`;
  const [a, b] = [await running(store, company, `${company}-2`), await running(store, company, `${company}-2`)];
  const all = ids(company, 100);
  const shuffled = () => all.map((id) => listed(id, { name: randomUUID() })).sort(() => Math.random() - 0.5);
  const companies = [company, `${company}-2`].map((id) => ({ id, name: id }));
  const setCompanies = (run: Run, count: number) =>
    store.connections.setCompanies(run.connectionId, companies.slice(0, count), { complete: true });
  for (let round = 0; round < 25; round++) {
    const work: Promise<unknown>[] = [
      ...[a, b, a, b].map((run) => record(run, company, shuffled())),
      setCompanies(a, round % 3),
      setCompanies(b, (round + 1) % 3),
      store.assets.dispatch({ perConnection: 20 }).then(async (due) => {
        const leased = await Promise.all((due ?? []).map(({ id }) => store.assets.take(id, 60_000)));
        const leases = leased.flatMap((asset) => (asset ? [leaseOf(asset)] : []));
        await store.assets.renew(leases.reverse(), 60_000);
        await Promise.all(leases.map((lease) => store.assets.again(lease, 0, { spent: false, reason: null })));
      }),
      store.assets.overdue(0),
    ];
    for (const result of await Promise.allSettled(work)) {
      expect(result).toMatchObject({ status: 'fulfilled' });
    }
  }
  const runs = await Promise.all([a, b].map((run) => store.syncs.get(run.sync.id)));
  expect(runs.reduce((sum, run) => sum + run!.new, 0)).toBe(100);
  // In the end, the connection that can read the company mirrors all of it.
  await setCompanies(a, 2);
  await setCompanies(b, 0);
  await setCompanies(a, 2);
  await store.connections.adopt(1000);
  const owners = new Set(
    (await store.assets.search({ companyId: company, limit: 1000 })).map((asset) => asset.connectionId),
  );
  expect(owners).toEqual(new Set([a.connectionId]));
});

/** A leased asset. */
async function inHand(run: Run, companyId: string, id: string) {
  await record(run, companyId, [listed(id)]);
  await until('its lease to come', async () => {
    await store.assets.dispatch({ perConnection: 100 });
    return (await store.assets.get(id))!.queuedAt;
  });
  return leaseOf((await store.assets.take(id, 60_000))!);
}

test('the result of a worker does not hide what a listing has seen since', async () => {
  const run = await running(store, 'since');
  const changed = (id: string) => record(run, 'since', [listed(id, { name: 'another' })]);
  for (const [id, conclude] of [
    ['since failed', (lease) => store.assets.failed(lease, why)],
    ['since unavailable', (lease) => store.assets.unavailable(lease, why)],
    ['since mirrored', (lease) => store.assets.mirrored(lease, found)],
  ] as [string, (lease: ReturnType<typeof leaseOf>) => Promise<boolean>][]) {
    const lease = await inHand(run, 'since', id);
    await changed(id);
    expect(await conclude(lease)).toBe(true);
    const { state, nextAt, attempts } = (await store.assets.get(id))!;
    // The listing has made it pending, so a worker compares the bucket again.
    expect({ id, state, due: nextAt !== null, attempts }).toEqual({ id, state: 'pending', due: true, attempts: 0 });

    const again = await inHand(run, 'since', `${id}, and nothing changed`);
    expect(await conclude(again)).toBe(true);
    expect(await store.assets.get(again.assetId)).toMatchObject({ state: id.split(' ')[1], nextAt: null });
  }
});

test('an asset that a listing changes during its lease does not wait for the next attempt', async () => {
  const run = await running(store, 'soon');
  for (const [id, conclude] of [
    ['soon again', (lease) => store.assets.again(lease, 3_600_000, { reason: why })],
    ['soon processing', (lease) => store.assets.processing(lease, 3_600_000)],
  ] as [string, (lease: ReturnType<typeof leaseOf>) => Promise<boolean>][]) {
    const waits = async ({ assetId }: { assetId: string }) =>
      (await store.assets.get(assetId))!.nextAt!.getTime() > (await store.now());
    const changed = await inHand(run, 'soon', id);
    await record(run, 'soon', [listed(id, { name: 'another' })]);
    await conclude(changed);
    expect(await waits(changed)).toBe(false);
    const unchanged = await inHand(run, 'soon', `${id}, unchanged`);
    await conclude(unchanged);
    expect(await waits(unchanged)).toBe(true);
  }
});

test('after a lease has ended, a late heartbeat or a second result changes nothing', async () => {
  const run = await running(store, 'late');
  const lease = await inHand(run, 'late', 'late');
  expect(await store.assets.renew([lease], 60_000)).toEqual(new Set(['late']));
  expect(await store.assets.again(lease, 0, { spent: false, reason: null })).toBe(true);
  expect(await store.assets.renew([lease], 60_000)).toEqual(new Set());
  expect(await store.assets.failed(lease, why)).toBe(false);
  expect(await store.assets.startTransfer(lease)).toBe(false);
  expect(await store.assets.get('late')).toMatchObject({ state: 'pending', leaseUntil: null });
  await until('its next lease', async () => {
    await store.assets.dispatch({ perConnection: 100 });
    return store.assets.take('late', 60_000);
  });
});
