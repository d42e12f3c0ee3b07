import pg from 'pg';
import { afterAll, expect, test } from 'vitest';
import type { Reason } from '../../../src/floor/reason-codes.ts';
import { note } from '../../../src/store/assets/history.ts';
import { leaseOf } from '../../../src/store/assets/leases.ts';
import { until } from '../../support/until.ts';
import { listed, newStore, running } from '../records.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

const pending = { state: 'pending', reason: null, reset: true, due: true } as const;

/** Assets that are recorded and on the queue. */
async function queued(company: string, ...ids: string[]) {
  const run = await running(store, company);
  await store.syncs.recordPage({
    ...run,
    companyId: company,
    assets: ids.map((id) => listed(id)),
    decide: () => pending,
    position: {},
  });
  await store.assets.dispatch({ perConnection: 1000 });
  return run;
}
const kinds = async (id: string) => (await store.history.ofAsset(id)).rows.map(({ kind }) => kind);
async function query(text: string, values: unknown[] = []): Promise<void> {
  const client = new pg.Client({ connectionString: opened.url });
  await client.connect();
  await client.query(text, values).finally(() => client.end());
}

test('the history of a lease is one row with its steps, its outcome and its sync', async () => {
  const { sync } = await queued('a', 'a1');
  const lease = leaseOf((await store.assets.take('a1', 60_000))!);
  note(lease, 'library_answered', { status: 'ready' });
  const reason: Reason = { code: 'error', text: 'it was interrupted' };
  for (let n = 0; n < 70; n++) note(lease, 'part_failed', { part: n, reason });
  expect(await store.assets.retryLater(lease, 60_000, { spent: true, reason })).toBe(true);
  const { rows } = await store.history.ofAsset('a1');
  expect(rows).toMatchObject([
    { kind: 'listed', syncId: sync.id, data: { news: 'new', state: 'pending', due: true } },
    {
      kind: 'attempt',
      syncId: sync.id,
      data: { outcome: 'again', reason, nextAt: expect.any(String), more: 11 },
    },
  ]);
  const { nextAt } = (await store.assets.get('a1'))!;
  expect(Math.abs(Date.parse(rows[1]!.data.nextAt!) - nextAt!.getTime())).toBeLessThan(20_000);
  expect(rows[1]!.data.steps).toHaveLength(60);
  expect(rows[1]!.data.steps![0]).toMatchObject({ did: 'library_answered', status: 'ready' });
});

test('a worker that has lost its lease adds no history; the loss is recorded once', async () => {
  await queued('b', 'b1');
  const lease = leaseOf((await store.assets.take('b1', 1))!);
  await until('it to be missed', async () => (await store.assets.overdue(60_000)).length > 0);
  await until('it to be missed again', async () => (await store.assets.overdue(0)).length > 0);
  const next = (await store.assets.take('b1', 60_000))!;
  note(lease, 'library_answered', { status: 'ready' });
  expect(await store.assets.failed(lease, { code: 'error', text: 'too late' })).toBe(false);
  expect(await kinds('b1')).toEqual(['listed', 'lost']);
  expect(await store.assets.failed(leaseOf(next), { code: 'error', text: 'in time' })).toBe(true);
  expect(await kinds('b1')).toEqual(['listed', 'lost', 'attempt']);
});

test('of a lost and a current lease that end in one statement, only the current one is saved', async () => {
  await queued('d', 'd1');
  const lost = leaseOf((await store.assets.take('d1', 1))!);
  await until('it to be missed', async () => (await store.assets.overdue(60_000)).length > 0);
  await until('it to be missed again', async () => (await store.assets.overdue(0)).length > 0);
  const current = leaseOf((await store.assets.take('d1', 60_000))!);
  const done = (recordKey: string) => ({
    ...{ detail: {}, recordKey, waitMs: null, followUps: 0, sidecarFiles: {} },
    ...({ transcriptState: 'none', transcriptKeys: null, transcriptDeadline: null } as const),
    ...({ thumbnailState: 'none', thumbnail: null } as const),
  });
  const ends = [store.assets.mirrored(lost, done('lost')), store.assets.mirrored(current, done('current'))];
  expect(await Promise.all(ends)).toEqual([false, true]);
  expect(await store.assets.get('d1')).toMatchObject({ state: 'mirrored', recordKey: 'current' });
});

test('old history is deleted, and the oldest entries of an asset that has too many', async () => {
  await queued('c', 'c1', 'c2');
  await query(
    `INSERT INTO asset_history (asset_id, kind, at) SELECT 'c1', 'attempt', now() - interval '31 days' FROM generate_series(1, 25)`,
  );
  await query(
    `INSERT INTO asset_history (asset_id, kind, data) SELECT 'c2', 'attempt', jsonb_build_object('ms', n) FROM generate_series(1, 320) n`,
  );
  expect((await store.history.ofAsset('c2')).more).toBe(true);
  expect(await store.prune({ auditMs: Number.POSITIVE_INFINITY })).toMatchObject({ history: 25 + 121 });
  expect(await kinds('c1')).toEqual(['listed']);
  const { rows, more } = await store.history.ofAsset('c2');
  expect(more).toBe(false);
  expect(rows.map(({ data }) => data.ms)).toEqual(Array.from({ length: 200 }, (_, i) => 121 + i));
});
