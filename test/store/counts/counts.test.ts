import fc from 'fast-check';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newStore } from '../records.ts';

const opened = await newStore();
const { store } = opened;
const pool = new pg.Pool({ connectionString: opened.url, max: 4 });
beforeAll(async () => {
  await pool.query(`
    INSERT INTO connections (id, user_id, user_name, user_email, status) VALUES
      ('c0', 'u0', 'n', 'e', 'active'), ('c1', 'u1', 'n', 'e', 'paused'), ('c2', 'u2', 'n', 'e', 'active');
    INSERT INTO companies VALUES ('k0', 'n'), ('k1', 'n');
    INSERT INTO access (connection_id, company_id, lost_at) VALUES
      ('c0', 'k0', NULL), ('c0', 'k1', now()), ('c1', 'k0', NULL), ('c2', 'k1', NULL)`);
});
afterAll(async () => {
  await pool.end();
  await opened.close();
});

/** The same figures, by reading all assets. */
async function counted() {
  const read = async (text: string) => (await pool.query({ text, types: numbers })).rows;
  const numbers = { getTypeParser: (oid: number) => (oid === 20 ? Number : pg.types.getTypeParser(oid)) } as never;
  const facts = `skipped, count(*) AS count, coalesce(sum(bytes), 0)::bigint AS bytes`;
  const [outstanding] = await read(`
    SELECT count(*) FILTER (WHERE state IN ('pending', 'transferring')) AS count,
      coalesce(sum(size) FILTER (WHERE state IN ('pending', 'transferring')), 0)::bigint AS bytes,
      count(*) FILTER (WHERE state = 'pending' AND reason IS NOT NULL AND next_at > now() + interval '5 seconds') AS later,
      count(*) FILTER (WHERE state = 'mirrored') AS sidecars
    FROM assets JOIN access USING (connection_id, company_id) JOIN connections c ON c.id = assets.connection_id
    WHERE next_at IS NOT NULL AND access.lost_at IS NULL AND c.status = 'active'`);
  return {
    totals: await read(`SELECT state, ${facts} FROM assets GROUP BY state, skipped`),
    byConnection: await read(
      `SELECT connection_id AS "connectionId", state, ${facts} FROM assets WHERE connection_id IS NOT NULL
       GROUP BY connection_id, state, skipped`,
    ),
    outstanding,
  };
}
const kept = async () => ({
  totals: await store.counts.totals(),
  byConnection: await store.counts.byConnection(['c0', 'c1', 'c2']),
  outstanding: await store.counts.outstanding(),
});
const sorted = ({ totals, byConnection, outstanding }: Awaited<ReturnType<typeof kept>>) => {
  const order = (rows: object[]) => rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort();
  return { totals: order(totals), byConnection: order(byConnection), outstanding };
};
async function expectRight() {
  expect(sorted(await kept())).toEqual(sorted(await counted()));
}

const state = fc.constantFrom('pending', 'transferring', 'processing', 'mirrored', 'failed', 'unavailable', 'gone');
const row = fc.record({
  connection: fc.constantFrom(null, 'c0', 'c1', 'c2'),
  company: fc.constantFrom('k0', 'k1'),
  state,
  size: fc.option(fc.nat(1000)),
  bytes: fc.option(fc.nat(1000)),
  skipped: fc.boolean(),
  due: fc.boolean(),
  reason: fc.boolean(),
});
type Row = typeof row extends fc.Arbitrary<infer T> ? T : never;
const statement = fc.oneof(
  fc.record({ what: fc.constant('insert' as const), ids: fc.uniqueArray(fc.nat(30), { maxLength: 6 }), row }),
  fc.record({ what: fc.constant('update' as const), ids: fc.uniqueArray(fc.nat(30), { maxLength: 6 }), row }),
  fc.record({ what: fc.constant('touch' as const), ids: fc.uniqueArray(fc.nat(30), { maxLength: 6 }), row }),
  fc.record({ what: fc.constant('delete' as const), ids: fc.uniqueArray(fc.nat(30), { maxLength: 4 }), row }),
  fc.record({ what: fc.constant('fold' as const), ids: fc.constant([] as number[]), row }),
);
type Statement = typeof statement extends fc.Arbitrary<infer T> ? T : never;

const values = (ids: number[], r: Row) => {
  const isSkipped = r.skipped && r.state === 'pending';
  const moving = ['pending', 'transferring', 'processing'].includes(r.state);
  return [
    ids.map((id) => `a${String(id).padStart(2, '0')}`),
    r.connection,
    r.company,
    r.state,
    r.size,
    r.bytes,
    (moving || r.due) && !isSkipped ? new Date(Date.now() + 3_600_000) : null,
    isSkipped
      ? { code: 'skipped_by_filter', list: 'exclude', field: 'type', value: 'videos' }
      : r.reason
        ? { code: 'error', text: 'why' }
        : null,
  ];
};
async function apply(client: pg.Pool | pg.PoolClient, { what, ids, row: r }: Statement) {
  if (what === 'fold') return store.counts.fold();
  const names = values(ids, r)[0];
  if (what === 'delete') return client.query('DELETE FROM assets WHERE id = ANY($1)', [names]);
  if (what === 'touch') return client.query(`UPDATE assets SET lease = lease + 1 WHERE id = ANY($1)`, [names]);
  const set = `connection_id = $2, company_id = $3, state = $4, size = $5::bigint, bytes = $6::bigint, next_at = $7, reason = $8`;
  if (what === 'update') {
    return client.query(
      `UPDATE assets SET ${set} FROM (SELECT id FROM assets WHERE id = ANY($1) ORDER BY id FOR UPDATE) AS mine WHERE assets.id = mine.id`,
      values(ids, r),
    );
  }
  return client.query(
    `INSERT INTO assets (id, connection_id, company_id, state, size, bytes, next_at, reason, listed)
     SELECT id, $2, $3, $4, $5::bigint, $6::bigint, $7::timestamptz, $8, '{}' FROM unnest($1::text[]) AS id ORDER BY id
     ON CONFLICT (id) DO UPDATE SET state = excluded.state, next_at = excluded.next_at, reason = excluded.reason`,
    values(ids, r),
  );
}

test('counts match the assets after any statement, folded or not', { tags: 'slow' }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(statement, { maxLength: 12 }), async (statements) => {
      for (const one of statements) await apply(pool, one);
      await expectRight();
    }),
    { numRuns: 60 },
  );
});

test('counts match the assets after concurrent transactions and rollbacks during a fold', async () => {
  const scripts = fc.sample(fc.array(statement, { minLength: 3, maxLength: 6 }), 60);
  let next = 0;
  const work = async () => {
    for (let script = scripts[next++]; script; script = scripts[next++]) {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        for (const one of script.slice(0, 2)) if (one.what !== 'fold') await apply(client, one);
        await client.query(next % 3 === 0 ? 'ROLLBACK' : 'COMMIT');
      } catch (error) {
        // Two transactions that write the same assets in another order: which is not tested here.
        await client.query('ROLLBACK');
        if ((error as { code?: string }).code !== '40P01') throw error;
      } finally {
        client.release();
      }
    }
  };
  let working = true;
  const folding = (async () => {
    while (working) await Promise.all([store.counts.fold(), store.counts.fold()]);
  })();
  await Promise.all([work(), work(), work()]);
  working = false;
  await folding;
  await expectRight();
  await store.counts.fold();
  await expectRight();
  expect((await pool.query('SELECT 1 FROM asset_count_changes')).rowCount).toBe(0);
});

test('a statement that changes no count writes no row of counts', async () => {
  await pool.query('DELETE FROM assets');
  await apply(pool, { what: 'insert', ids: [1, 2, 3], row: fc.sample(row, 1)[0]! });
  await store.counts.fold();
  await pool.query('UPDATE assets SET lease = lease + 1, queued_at = now()');
  expect((await pool.query('SELECT 1 FROM asset_count_changes')).rowCount).toBe(0);
  // Many assets with the same change write one row.
  await pool.query(`UPDATE assets SET state = 'failed', bytes = 7, next_at = NULL`);
  expect((await pool.query('SELECT 1 FROM asset_count_changes')).rowCount).toBeLessThanOrEqual(2);
  await expectRight();
});

test('assets are found by their current name, project and type', async () => {
  await pool.query('DELETE FROM assets');
  expect((await pool.query('SELECT 1 FROM asset_facets')).rowCount).toBe(0);
  await pool.query(`
    INSERT INTO assets (id, company_id, state, name, project_id, asset_type, listed)
    SELECT 'a' || i, 'k0', 'mirrored', 'Interview ' || i, 'p' || i % 2, 'videos', '{}' FROM generate_series(1, 6) AS i`);
  const found = async (filter: object) => (await store.assets.search({ limit: 10, ...filter })).map(({ id }) => id);
  expect(await found({ q: 'VIEW' })).toEqual(['a1', 'a2', 'a3', 'a4', 'a5', 'a6']);
  expect(await found({ q: 'view', projectId: 'p1', after: ['a1', 'a1'] })).toEqual(['a3', 'a5']);
  expect(await found({ q: 'a4' })).toEqual(['a4']);
  expect(await found({ q: 'a4', projectId: 'p1' })).toEqual([]);
  // One or two letters match the beginning of a word; special characters are not patterns.
  expect(await found({ q: 'iN' })).toHaveLength(6);
  expect(await found({ q: 'ew' })).toEqual([]);
  expect(await found({ q: '3' })).toEqual(['a3']);
  expect(await found({ q: '_' })).toEqual([]);
  await pool.query(`UPDATE assets SET name = 'Drone_4K-cut (final).mp4' WHERE id = 'a6'`);
  for (const q of ['dr', '4k', 'cu', 'fi', 'mp', 'd', '_']) expect(await found({ q })).toEqual(['a6']);
  await pool.query(`UPDATE assets SET name = 'Interview 6' WHERE id = 'a6'`);
  expect(await found({ q: 'view', limit: 2 })).toEqual(['a1', 'a2']);
  await pool.query(`UPDATE assets SET name = 'Portrait', asset_type = 'photography' WHERE id = 'a3'`);
  await pool.query(`UPDATE assets SET name = NULL, project_id = NULL WHERE id = 'a5'`);
  expect(await found({ q: 'view' })).toEqual(['a1', 'a2', 'a4', 'a6']);
  expect(await found({ type: 'photography' })).toEqual(['a3']);
  expect(await found({ type: 'videos', projectId: 'p1' })).toEqual(['a1']);
  await pool.query(`DELETE FROM assets WHERE id = 'a1'`);
  expect(await found({ projectId: 'p1' })).toEqual(['a3']);
  expect(await found({})).toEqual(['a2', 'a3', 'a4', 'a5', 'a6']);
});

test('a due asset whose size changes is counted with its new size, folded or not', async () => {
  const expectBytes = async (bytes: number) => {
    expect((await store.counts.outstanding()).bytes).toBe(bytes);
    await expectRight();
  };
  await pool.query('DELETE FROM assets');
  await pool.query(`
    INSERT INTO assets (id, connection_id, company_id, state, size, next_at, listed)
    VALUES ('s1', 'c0', 'k0', 'pending', 5, now(), '{}'), ('s2', 'c0', 'k0', 'pending', 5, now(), '{}')`);
  await store.counts.fold();
  await pool.query(`UPDATE assets SET size = 500 WHERE id = 's1'`);
  await expectBytes(505);
  await pool.query(`UPDATE assets SET state = 'mirrored', next_at = NULL WHERE id = 's1'`);
  await expectBytes(5);
  await store.counts.fold();
  await expectBytes(5);
});
