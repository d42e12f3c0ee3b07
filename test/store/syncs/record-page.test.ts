import { randomBytes, randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import { leaseOf } from '../../../src/store/assets/leases.ts';
import type { ListedAsset } from '../../../src/store/database/schema.ts';
import { hashOf } from '../../../src/store/removals/tombstones.ts';
import type { Decide } from '../../../src/store/syncs/write-assets.ts';
import { ask } from '../../support/database.ts';
import { until } from '../../support/until.ts';
import { listed, newStore, running } from '../records.ts';
import { decide, ids, pending, type Run, recorder } from './pages.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());
const record = recorder(store);

test('a page distinguishes new, changed and known assets', async () => {
  const run = await running(store, 'a');
  const [one, two, three] = ids('known', 3) as [string, string, string];
  expect(await record(run, 'a', [listed(one), listed(two)])).toMatchObject({ new: 2, changed: 0 });
  const renamed = { name: 'renamed', size: 9, listed: { id: two, title: 'renamed' } };
  const page = [listed(one), listed(two, renamed), listed(three)];
  expect(await record(run, 'a', page)).toMatchObject({ new: 1, changed: 1 });
  expect(await record(run, 'a', page)).toMatchObject({ new: 0, changed: 0, hasWork: false });
  expect(await record(run, 'a', [])).toMatchObject({ new: 0, changed: 0 });
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
  expect(await store.syncs.recordPage({ ...page, assets })).toMatchObject({ new: 0, changed: 1, hasWork: true });
  expect(await store.syncs.get(run.sync.id)).toMatchObject({ seen: 4, new: 2, changed: 1 });
});

test('pages of several companies at the same time are all counted', async () => {
  const companies = ids('parallel', 4);
  const run = await running(store, ...companies);
  await Promise.all(companies.map((company) => record(run, company, [listed(`${company} 1`), listed(`${company} 2`)])));
  const sync = await store.syncs.get(run.sync.id);
  expect(sync).toMatchObject({ pages: 4, seen: 8, new: 8, changed: 0 });
  expect(Object.keys(sync!.position).sort()).toEqual(companies);
});

test('a company has replacements to judge if this page or an earlier one has set a file aside', async () => {
  const run = await running(store, 'judge');
  const setAside: Decide = (before, asset) => (before ? { ...pending, setAside: true } : decide(before, asset, {}));
  const page = (assets: ListedAsset[]) =>
    store.syncs.recordPage({ ...run, companyId: 'judge', assets, decide: setAside, position: {} });
  const [known, other] = ids('judge', 2) as [string, string];
  expect(await page([listed(known)])).toMatchObject({ new: 1, toJudge: false });
  expect(await page([listed(known, { size: 9 })])).toMatchObject({ toJudge: true, setAside: 1 });
  expect(await page([listed(other)])).toMatchObject({ toJudge: true, setAside: 0 });
});

test('a file that is set aside leaves the deadline of the transcript as it is', async () => {
  const run = await running(store, 'deadline');
  const setAside: Decide = (before, asset) => (before ? { ...pending, setAside: true } : decide(before, asset, {}));
  const page = (assets: ListedAsset[]) =>
    store.syncs.recordPage({ ...run, companyId: 'deadline', assets, decide: setAside, position: {} });
  const [id] = ids('deadline', 1) as [string];
  await page([listed(id)]);
  await ask(
    opened.url,
    `UPDATE assets SET transcript_state = 'pending', transcript_deadline = '2030-01-01' WHERE id = '${id}'`,
  );
  expect(await page([listed(id, { size: 9 })])).toMatchObject({ setAside: 1 });
  const asset = (await store.assets.get(id))!;
  expect(asset).toMatchObject({ transcriptState: 'pending', transcriptDeadline: expect.any(Date) });
});

test('if a page lists an asset twice, the last entry is recorded', async () => {
  const run = await running(store, 'b');
  const id = 'twice';
  expect(await record(run, 'b', [listed(id, { name: 'first' }), listed(id, { name: 'last' })])).toMatchObject({
    new: 1,
    changed: 0,
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
    expect(await page).toMatchObject({ new: 1, changed: 0 });
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
    const reason = asset.problem;
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
  const notRecorded = { code: 'not_recorded', error: expect.stringMatching(/^index row (size|requires)/) };
  expect(written.refused).toEqual([two, long, known].map((id) => ({ id, reason: notRecorded })));
  expect(await store.assets.get(one)).toMatchObject({ state: 'pending' });
  expect(await store.assets.get(two)).toMatchObject({ state: 'failed', reason: notRecorded, projectId: null });
  expect(await store.assets.get(known)).toMatchObject({
    state: 'pending',
    reason: notRecorded,
    name: `name of ${known}`,
  });
  expect(await store.assets.get(three)).toMatchObject({ state: 'pending' });
  expect(await store.assets.get(long)).toBeUndefined();
  expect(await store.syncs.get(run.sync.id)).toMatchObject({
    pages: 2,
    seen: 6,
    new: 4,
    changed: 1,
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
        await Promise.all(leases.reverse().map((lease) => store.assets.renew(lease, 60_000)));
        await Promise.all(leases.map((lease) => store.assets.retryLater(lease, 0, { spent: false, reason: null })));
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
