import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStore, type Store } from '../../../src/store/store.ts';
import type { TakenSync } from '../../../src/store/syncs/take-lease.ts';
import { byOperator } from '../../support/reasons.ts';
import { until } from '../../support/until.ts';
import { leaseTo, newStoreAndClient, running, silent } from '../records.ts';

/** The number of assets that wait for a transcript. */
const waiting = 5000;

const opened = await newStoreAndClient();
const { client } = opened;
const { connectionId } = await running(opened.store, 'acme');
beforeAll(async () => {
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, name, listed, state, next_at, mirrored_at)
     SELECT 'film ' || i, $1, 'acme', 'film', '{}', 'mirrored', now() + interval '1 day', now() FROM generate_series(1, $2::int) AS i`,
    [connectionId, waiting],
  );
});
afterAll(() => opened.close());

/** The index entries and rows of a table that ended connections have read so far. */
async function read(table: string): Promise<{ scans: number; rows: number }> {
  const { rows } = await client.query(
    `SELECT (SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE relname = $1)::int AS scans,
      (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = $1)::int + seq_tup_read::int AS rows
     FROM pg_stat_user_tables WHERE relname = $1`,
    [table],
  );
  return rows[0];
}

/** The entries and rows that this work reads, in a separate store. */
async function readBy(least: number, work: (store: Store) => Promise<void>, table = 'assets'): Promise<number> {
  // What this connection has read itself is counted now, and not meanwhile.
  await client.query('SELECT pg_stat_force_next_flush()');
  const before = await read(table);
  const store = await openStore({ url: opened.url, log: silent });
  await work(store);
  // PostgreSQL adds the reads of a connection when it ends.
  await store.close();
  const after = await until('what was read to be counted', async () => {
    const found = await read(table);
    return found.scans >= before.scans + least ? found : undefined;
  });
  return after.rows - before.rows;
}

test('the dispatcher does not read assets that are not due, however many wait', async () => {
  const rounds = 20;
  const rows = await readBy(rounds, async (store) => {
    for (let round = 0; round < rounds; round++) expect(await store.assets.dispatch({ perConnection: 4 })).toEqual([]);
  });
  expect(rows).toBeLessThan(waiting);

  await client.query(`UPDATE assets SET next_at = now() WHERE id = 'film 7'`);
  expect(await opened.store.assets.dispatch({ perConnection: 4 })).toMatchObject([{ id: 'film 7', state: 'mirrored' }]);
});

test.each([
  ['before there are statistics', `DELETE FROM pg_statistic WHERE starelid = 'assets'::regclass`],
  ['with statistics from before it was connected', 'ANALYZE assets'],
])(
  'dispatcher and adaptive limit do not read all assets of a new connection, %s',
  { tags: 'slow' },
  async (_, prepare) => {
    const { connectionId: fresh } = await running(opened.store, 'fresh');
    await client.query('ALTER TABLE assets SET (autovacuum_enabled = false)');
    await client.query(prepare);
    await client.query(
      `INSERT INTO assets (id, connection_id, company_id, listed, state, next_at)
     SELECT 'fresh ' || i, $1, 'fresh', '{}', 'pending', now() FROM generate_series(1, $2::int) AS i`,
      [fresh, waiting],
    );
    // As after a while of transfers: the index of queued assets has grown.
    await client.query(`UPDATE assets SET queued_at = now() WHERE connection_id = $1`, [fresh]);
    await client.query(`UPDATE assets SET queued_at = NULL WHERE connection_id = $1`, [fresh]);
    const slots = { perConnection: 4, only: [fresh] };
    const rounds = 20;
    const most = (rounds * waiting) / 4;
    try {
      expect(await opened.store.assets.dispatch(slots)).toHaveLength(4);
      const dispatched = () =>
        readBy(rounds, async ({ assets }) => {
          for (let round = 0; round < rounds; round++) expect(await assets.dispatch(slots)).toEqual([]);
        });
      const counted = () =>
        readBy(rounds, async ({ connections }) => {
          for (let round = 0; round < rounds; round++)
            expect(await connections.concurrency(fresh)).toMatchObject({ queued: 4 });
        });
      // Index entries of earlier rows are read too, as long as any transaction of the server is older, also of another database.
      await expect.poll(dispatched).toBeLessThan(most);
      await expect.poll(counted).toBeLessThan(most);
    } finally {
      await client.query(`DELETE FROM assets WHERE connection_id = $1`, [fresh]);
      await client.query('ALTER TABLE assets RESET (autovacuum_enabled)');
    }
  },
);

test('the scrub does not read all assets to find the next and the oldest one', async () => {
  await client.query(`UPDATE assets SET media = '{}', verified_at = now() - random() * interval '90 days'`);
  const rounds = 20;
  const rows = await readBy(rounds, async (store) => {
    for (let round = 0; round < rounds; round++) {
      const next = (await store.scrub.next(['film 1']))!;
      const { oldest } = await store.scrub.progress();
      expect(Math.abs(Date.now() - next.ageMs - oldest!.getTime())).toBeLessThan(60_000 + 86_400_000);
    }
  });
  expect(rows).toBeLessThan(waiting);
  await client.query('UPDATE assets SET media = NULL, verified_at = NULL');
});

test('a restore of all assets reads each version a few times, however many pages there are', async () => {
  await client.query(`UPDATE assets SET media = '{}'`);
  await client.query(
    `INSERT INTO asset_versions (asset_id, replaced_at, company_id, mirrored_at, reason, media, files, bytes)
     SELECT id, now(), 'acme', now(), '{}', '{}', '[]', 0 FROM (SELECT id FROM assets UNION ALL SELECT 'orphan') AS them (id)`,
  );
  await client.query('ANALYZE asset_versions');
  const found: string[] = [];
  const work = async ({ versions }: Store) => {
    for (const orphans of [false, true]) {
      for (let page = ['']; page.length > 0; found.push(...page)) {
        page = await versions.restorable({ orphans, after: page.at(-1)!, limit: 200 });
      }
    }
  };
  expect(await readBy(1, work, 'asset_versions')).toBeLessThan(4 * waiting);
  expect(found).toHaveLength(waiting + 1);
  await client.query('DELETE FROM asset_versions');
  await client.query('UPDATE assets SET media = NULL');
});

test('adopting assets of an ended connection reads neither all of its assets nor those of the adopter', async () => {
  const ended = (await running(opened.store, 'acme', 'elsewhere')).connectionId;
  await opened.store.connections.end(ended, byOperator);
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, name, listed, state)
     SELECT 'other ' || i, $1, 'elsewhere', 'film', '{}', 'mirrored' FROM generate_series(1, $2::int) AS i`,
    [ended, waiting],
  );
  // The usual state, not the minute after many new assets.
  await client.query('ANALYZE assets');
  // A few: for 1000 of these 10,000 assets, the best plan would be to read all.
  const rows = await readBy(1, async (store) => expect(await store.connections.adopt(10)).toBe(0));
  expect(rows).toBeLessThan(waiting);
});

test('an erasure does not read all lines of verifications', async () => {
  await client.query(`INSERT INTO verifications (id, status) VALUES ('v', 'done')`);
  await client.query(
    `INSERT INTO verification_lines (verification_id, number, mark, key, asset_id, difference)
     SELECT 'v', 2 * i, '=', NULL, 'film ' || i, false FROM generate_series(1, $1::int) AS i
     UNION ALL SELECT 'v', 2 * i + 1, '+', 'acme/_/film ' || i || '/cut', NULL, true FROM generate_series(1, $1::int) AS i`,
    [waiting],
  );
  await client.query('ANALYZE verification_lines');
  const asset = { assetId: 'film 7', hash: 'hash', segment: 'film 7' };
  const work = async ({ removals }: Store) => {
    expect(await removals.finishAssetErasure(asset, undefined, [])).toBe(true);
  };
  expect(await readBy(2, work, 'verification_lines')).toBeLessThan(10);
  const { rows } = await client.query('SELECT count(*)::int AS left FROM verification_lines');
  expect(rows).toEqual([{ left: 2 * waiting - 2 }]);
  await client.query('DELETE FROM verifications');
});

test('a sync of one of many connections does not read the companies of the others', async () => {
  const [many, syncs] = [3000, 10];
  const made = 'FROM generate_series(1, $1::int) AS i';
  await client.query(
    `INSERT INTO connections (id, user_id, user_name, user_email, status) SELECT 'of ' || i, 'user ' || i, 'U', 'u', 'active' ${made}`,
    [many],
  );
  await client.query(`INSERT INTO companies (id, name) SELECT 'company ' || i, 'C' ${made}`, [many]);
  await client.query(`INSERT INTO access (connection_id, company_id) SELECT 'of ' || i, 'company ' || i ${made}`, [
    many,
  ]);
  const work = async (store: Store) => {
    for (let i = 1; i <= syncs; i++) {
      const lease = leaseTo(`of ${i}`, 'owner');
      await store.syncs.request(lease.connectionId, 'incremental');
      const sync = (await store.syncs.takeNext(lease)) as TakenSync;
      expect(sync.companyAccess).toMatchObject({ status: 'active', readable: [{ id: `company ${i}` }] });
      await store.syncs.endSync(sync, lease, { status: 'done', error: null });
    }
  };
  expect(await readBy(syncs, work, 'access')).toBeLessThan(many);
});

test('the database records when an asset has settled, whichever statement settles it', async () => {
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, listed, state, next_at)
     VALUES ('settling', $1, 'acme', '{}', 'pending', now()), ('restored', $1, 'acme', '{}', 'mirrored', NULL)`,
    [connectionId],
  );
  const at = async (id: string) =>
    (await client.query<{ at: Date | null }>('SELECT settled_at AS at FROM assets WHERE id = $1', [id])).rows[0]!.at;
  const become = (state: string) =>
    client.query(`UPDATE assets SET state = $1, next_at = NULL WHERE id = 'settling'`, [state]);
  expect([await at('settling'), await at('restored')]).toEqual([null, expect.any(Date)]);
  await become('mirrored');
  const first = (await at('settling'))!;
  expect(Math.abs(first.getTime() - Date.now())).toBeLessThan(60_000);
  for (const state of ['mirrored', 'gone', 'mirrored', 'failed']) {
    await become(state);
    expect(await at('settling'), state).toEqual(first);
  }
  await become('gone');
  expect((await at('settling'))!.getTime()).toBeGreaterThan(first.getTime());
  await client.query(`DELETE FROM assets WHERE id IN ('settling', 'restored')`);
});

test('open and newly settled assets are paged by id, without those that are gone', { tags: 'slow' }, async () => {
  const states = ['pending', 'gone', 'failed', 'processing', 'unavailable', 'transferring', 'pending', 'failed'];
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, name, listed, state, next_at)
     SELECT 'unfinished ' || i, $1, 'acme', 'film', '{}', state, now() FROM unnest($2::text[]) WITH ORDINALITY AS made (state, i)`,
    [connectionId, states],
  );
  await client.query(`UPDATE assets SET settled_at = now() - interval '1 minute' WHERE id LIKE 'unfinished %'`);
  const { contents } = opened.store;
  const since = new Date(await opened.store.now());
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, name, listed, state)
     SELECT 'whole ' || i, $1, 'acme', 'film', '{}', 'mirrored' FROM generate_series(1, 3) AS i`,
    [connectionId],
  );
  await client.query(
    `UPDATE assets SET settled_at = $1::timestamptz + (right(id, 1)::int - 2) * interval '1 ms' WHERE id LIKE 'whole %'`,
    [since],
  );
  const found: string[] = [];
  for (let after = ''; ; ) {
    const page = await contents.openSince({ after, limit: 3, connectionId, since });
    if (!page) break;
    expect(page.rows.length).toBeLessThanOrEqual(3);
    after = page.last;
    found.push(...page.rows.map(({ id }) => id));
  }
  const ids = [1, 3, 4, 5, 6, 7, 8].map((i) => `unfinished ${i}`);
  expect(found).toEqual([...ids, 'whole 2', 'whole 3']);
  expect(await contents.openSince({ after: '', limit: 100, connectionId: 'another', since })).toBeUndefined();
});
