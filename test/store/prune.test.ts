import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, expect, inject, test } from 'vitest';
import type { Reason } from '../../src/floor/reason-codes.ts';
import { Queues } from '../../src/queue/queues.ts';
import type { Sync } from '../../src/store/database/schema.ts';
import { remembered } from '../../src/store/prune.ts';
import { decide } from '../../src/sync/decide.ts';
import { byOperator, why } from '../support/reasons.ts';
import { newRedis } from '../support/redis.ts';
import { until } from '../support/until.ts';
import { consented, leaseTo, listed, newStore, silent } from './records.ts';

const opened = await newStore();
const { store } = opened;
const database = new pg.Pool({ connectionString: opened.url, max: 2 });
afterAll(async () => {
  await database.end();
  await opened.close();
});
const query = async (text: string, values: unknown[] = []) => (await database.query(text, values)).rows;

/** Everything that has a date happened a day earlier. */
async function dayPasses(): Promise<void> {
  const dates = await query(
    `SELECT table_name, string_agg(format('%I = %I - interval ''1 day''', column_name, column_name), ', ') AS sets
     FROM information_schema.columns
     WHERE table_schema = 'public' AND data_type LIKE 'timestamp%' AND table_name NOT LIKE 'kysely%' GROUP BY table_name`,
  );
  for (const { table_name, sets } of dates) await query(`UPDATE ${table_name} SET ${sets}`);
}

async function rows(): Promise<Record<string, number>> {
  const tables = await query("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename");
  const counts: Record<string, number> = {};
  for (const { tablename } of tables) {
    counts[tablename] = Number((await query(`SELECT count(*) FROM ${tablename}`))[0].count);
  }
  return counts;
}

/** A run to its end over one page of a company. */
async function run(
  connectionId: string,
  companyId: string,
  what: { mode: 'incremental' | 'full'; ids: string[]; name?: string; error?: Reason },
): Promise<void> {
  const lease = leaseTo(connectionId, randomUUID());
  await store.syncs.request(connectionId, what.mode);
  const sync = (await store.syncs.takeNext(lease)) as Sync;
  const full = what.mode === 'full';
  const at = { sync, lease, companyId };
  await store.syncs.recordPage({
    ...at,
    assets: what.ids.map((id) => listed(id, { name: what.name ?? id, listed: { id, name: what.name ?? id } })),
    decide: (before, asset) => decide(before, asset, { full, transcripts: true, thumbnails: true }),
    position: { listed: full },
    highWaterMark: 1000,
    ...(full && { sighted: what.ids }),
  });
  if (full) {
    const missing = await store.missing.page(at, { after: '', limit: 100 });
    await store.missing.markGone(at, missing);
    await store.missing.endListing(at, { held: undefined, doubt: undefined });
  }
  const error = what.error ?? null;
  await store.syncs.endSync(sync, lease, { status: error ? 'failed' : 'done', error });
  await store.syncs.release(lease);
}

test('the database does not grow over two weeks of operation', { tags: 'slow', timeout: 240_000 }, async () => {
  const people = [consented(), consented()];
  const connections: { id: string; companyId: string }[] = [];
  for (const grant of people) {
    const { id } = await store.connections.connect(grant);
    const companyId = `company of ${grant.user.id}`;
    await store.connections.setCompanies(id, [{ id: companyId, name: 'Acme' }], { complete: true });
    connections.push({ id, companyId });
  }
  const [a, b] = connections as [(typeof connections)[0], (typeof connections)[0]];
  const ids = (companyId: string) => Array.from({ length: 10 }, (_, i) => `${companyId} ${i}`);

  async function aDay(day: number): Promise<void> {
    await dayPasses();
    for (const { id, companyId } of connections) {
      for (let i = 0; i < 2; i++) await run(id, companyId, { mode: 'incremental', ids: ids(companyId).slice(0, 2) });
      // One asset is renamed, one run fails, another asset goes and is back the next day.
      await run(id, companyId, { mode: 'incremental', ids: ids(companyId).slice(0, 1), name: `name of day ${day}` });
      await run(id, companyId, { mode: 'incremental', ids: [], error: why });
      await run(id, companyId, { mode: 'full', ids: ids(companyId).slice(day % 2) });
    }
    // A company that comes and goes, a user who leaves and connects again, attempts to connect.
    await store.connections.setCompanies(a.id, [], { complete: true });
    await store.connections.setCompanies(a.id, [{ id: a.companyId, name: 'Acme' }], { complete: true });
    await store.connections.end(b.id, byOperator);
    await store.connections.connect(people[1]!);
    for (let i = 0; i < 5; i++) {
      await store.connections.useState(randomUUID(), new Date(Date.now() + 600_000));
    }
    expect(await store.prune({ auditMs: Number.POSITIVE_INFINITY })).toBeDefined();
  }

  const counts: Record<string, number>[] = [];
  const days = Math.max(remembered.syncs, remembered.events) + 2;
  for (let day = 0; day < days + 14; day++) {
    await aDay(day);
    if (day >= days) counts.push(await rows());
  }
  // Every other day is alike.
  expect(counts.length).toBe(14);
  for (const [day, count] of counts.entries()) expect(count, `day ${day}`).toEqual(counts[day % 2]);
  expect(counts[0]!.syncs).toBeGreaterThan(100);
  expect(counts[0]).toMatchObject({ assets: 20, sightings: 0, used_states: 5 });
});

test('pruning keeps the last sync and event of each kind, however old, and what still runs', async () => {
  const { id } = await store.connections.connect(consented());
  const companyId = `company of ${id}`;
  await store.connections.setCompanies(id, [{ id: companyId, name: 'Acme' }], { complete: true });
  for (const mode of ['incremental', 'full', 'incremental', 'full'] as const) {
    await run(id, companyId, { mode, ids: [`asset of ${id}`] });
    await run(id, companyId, { mode, ids: [], error: why });
  }
  await store.connections.end(id, byOperator);
  await store.connections.connect({
    ...consented(),
    user: { id: (await store.connections.get(id))!.userId, name: '', email: '' },
  });
  await store.syncs.request(id, 'full');
  await query(
    "UPDATE syncs SET finished_at = finished_at - interval '1 year', requested_at = requested_at - interval '1 year'",
  );
  await query("UPDATE events SET at = at - interval '1 year'");
  await store.prune({ auditMs: Number.POSITIVE_INFINITY });
  expect(
    await query('SELECT mode, status, count(*)::int FROM syncs WHERE connection_id = $1 GROUP BY 1, 2 ORDER BY 1, 2', [
      id,
    ]),
  ).toEqual([
    { mode: 'full', status: 'done', count: 1 },
    { mode: 'full', status: 'failed', count: 1 },
    { mode: 'full', status: 'waiting', count: 1 },
    { mode: 'incremental', status: 'done', count: 1 },
    { mode: 'incremental', status: 'failed', count: 1 },
  ]);
  const kinds = await query(
    'SELECT kind, count(*)::int FROM events WHERE connection_id = $1 AND asset_id IS NULL GROUP BY 1',
    [id],
  );
  expect(kinds.map(({ kind }) => kind).sort()).toEqual([
    'company.gained',
    'connection.connected',
    'connection.disconnected',
    'connection.recovered',
    'sync.failed',
  ]);
  for (const { count } of kinds) expect(count).toBe(1);
});

test('old events of an asset that is no longer in the database are deleted', async () => {
  const { id } = await store.connections.connect(consented());
  await query(
    `INSERT INTO events (kind, connection_id, asset_id, at) SELECT 'asset.removed', $1, 'removed', at
    FROM unnest(ARRAY[now() - interval '1 year', now() - interval '1 day']) AS at`,
    [id],
  );
  await store.prune({ auditMs: Number.POSITIVE_INFINITY });
  const left = await query("SELECT at > now() - interval '2 days' AS young FROM events WHERE asset_id = 'removed'");
  expect(left).toEqual([{ young: true }]);
  await query("UPDATE events SET at = at - interval '1 year' WHERE asset_id = 'removed'");
  await store.prune({ auditMs: Number.POSITIVE_INFINITY });
  expect(await query("SELECT FROM events WHERE asset_id = 'removed'")).toEqual([]);
});

test('only one process at a time prunes', async () => {
  const results = await Promise.all(
    Array.from({ length: 5 }, () => store.prune({ auditMs: Number.POSITIVE_INFINITY })),
  );
  expect(results.some((pruned) => pruned !== undefined)).toBe(true);
  // The lock is released, whichever connection took it.
  expect(await store.prune({ auditMs: Number.POSITIVE_INFINITY })).toBeDefined();
});

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];

test.each(backends)('finished jobs are kept in a bounded number on $name', { tags: 'slow' }, async ({ redis }) => {
  const queues = new Queues({
    installation: 'i',
    databaseUrl: opened.url,
    redisUrl: redis && (await newRedis(redis)),
    log: silent,
  });
  let done = 0;
  const worker = queues.worker('assets', async () => ({ outcome: String(done++) }), { concurrency: 10 });
  try {
    void worker.run();
    for (let round = 0; round < 15; round++) {
      await queues.addAssets(
        Array.from({ length: 100 }, (_, i) => ({ id: `${round} ${i}`, state: 'pending' as const, lease: 0 })),
      );
    }
    await until('all to be done', () => done === 1500, 150_000);
    await until('the rest to be dropped', async () => {
      const { assets } = await queues.counts();
      return assets.waiting! + assets.active! === 0 && assets.completed! <= 1100;
    });
  } finally {
    await worker.close();
    await queues.close();
  }
});
