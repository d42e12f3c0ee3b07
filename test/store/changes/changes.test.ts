import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Change, ChangePage } from '../../../src/store/changes/changes.ts';
import { readCursor } from '../../../src/store/changes/cursor.ts';
import { remembered } from '../../../src/store/prune.ts';
import { until } from '../../support/until.ts';
import { newStore } from '../records.ts';

const opened = await newStore();
const { store } = opened;
const pool = new pg.Pool({ connectionString: opened.url, max: 12 });
beforeAll(() => pool.query(`INSERT INTO companies VALUES ('acme', 'Acme'), ('other', 'Other')`));
afterAll(async () => {
  await pool.end();
  await opened.close();
});

const mirrored = `'mirrored', jsonb_build_object('key', 'acme/' || id, 'bytes', 5, 'version', '1', 'checksums',
  jsonb_build_object('crc32', '0000abcd')), 5, 'acme/' || id || '.asset.json', now(), '{}', '{}'`;
/** Assets of which the copy is complete. */
async function mirror(...ids: string[]): Promise<void> {
  await pool.query(
    `INSERT INTO assets (id, company_id, name, state, media, bytes, record_key, mirrored_at, detail, listed)
     SELECT id, 'acme', 'name of ' || id, ${mirrored} FROM unnest($1::text[]) AS id`,
    [ids],
  );
}
const rename = (on: pg.Pool | pg.PoolClient, id: string, name: string = randomUUID()) =>
  on.query(`UPDATE assets SET detail = jsonb_build_object('name', $2::text) WHERE id = $1`, [id, name]);

async function page(after?: string, limit = 1000): Promise<ChangePage> {
  const found = await store.changes.page(after, limit);
  if (typeof found === 'string') throw new Error(found);
  return found;
}
/** The end of the feed, once transactions of other tests have ended. */
async function end(): Promise<string> {
  const [row] = (
    await pool.query('SELECT xact::text, id FROM asset_changes ORDER BY asset_changes.xact DESC, id DESC LIMIT 1')
  ).rows;
  return until('the end of the feed', async () => {
    let after: string | undefined;
    for (let size = 1; size > 0; ) {
      const { changes, nextCursor } = await page(after);
      [size, after] = [changes.length, nextCursor];
    }
    const { xact, id } = readCursor(after!)!;
    return !row || (xact === row.xact && id === Number(row.id)) ? after : undefined;
  });
}
const ofPage = ({ changes }: { changes: Change[] }) => changes.map(({ kind, assetId }) => `${kind} ${assetId}`);

/** A connection in a transaction that writes. */
async function open(): Promise<pg.PoolClient> {
  const client = await pool.connect();
  await client.query('BEGIN');
  await client.query('SELECT pg_current_xact_id()');
  return client;
}
async function commit(client: pg.PoolClient): Promise<void> {
  await client.query('COMMIT');
  client.release();
}

test('a change has the whole copy, and an empty page returns the same cursor', async () => {
  const after = await end();
  await mirror('one');
  const found = await until('the change', async () => {
    const it = await page(after);
    return it.changes.length > 0 ? it : undefined;
  });
  expect(found.changes).toEqual([
    {
      cursor: found.nextCursor,
      at: expect.any(Date),
      kind: 'added',
      assetId: 'one',
      connectionId: null,
      companyId: 'acme',
      projectId: null,
      name: 'name of one',
      objects: [
        { key: 'acme/one', bytes: 5, crc32: '0000abcd' },
        { key: 'acme/one.asset.json', bytes: null, crc32: null },
      ],
    },
  ]);
  expect(await page(found.nextCursor)).toEqual({ changes: [], nextCursor: found.nextCursor });
});

test('a change of a transaction that ends late comes before later ones, which wait for it', async () => {
  await mirror('slow', 'quick');
  const after = await end();
  const slow = await open();
  await rename(slow, 'slow');
  await rename(pool, 'quick');
  expect(await page(after)).toEqual({ changes: [], nextCursor: after });
  await commit(slow);
  const found = await until('both', async () => {
    const it = await page(after);
    return it.changes.length === 2 ? it : undefined;
  });
  expect(ofPage(found)).toEqual(['metadata slow', 'metadata quick']);
});

test('changes of an asset are in the order in which they happened, whichever transaction began first', async () => {
  await mirror('x');
  const after = await end();
  const early = await open();
  await pool.query(`UPDATE assets SET company_id = 'other' WHERE id = 'x'`);
  await early.query(`UPDATE assets SET state = 'gone' WHERE id = 'x'`);
  await commit(early);
  await until('both', async () => (await page(after)).changes.length === 2);
  expect(ofPage(await page(after))).toEqual(['metadata x', 'gone x']);
});

test('readers get every change of many writers exactly once, and all in the same order', {
  tags: 'slow',
}, async () => {
  const ids = Array.from({ length: 20 }, (_, n) => `many ${n}`);
  await mirror(...ids);
  const after = await end();
  let writing = true;
  /** Ends when a page is empty after the last change was written, and no other transaction is open. */
  async function reader(limit: number): Promise<string[]> {
    const cursors: string[] = [];
    for (let [cursor, done] = [after, false]; !done; ) {
      const wasWriting = writing;
      const { changes, nextCursor } = await page(cursor, limit);
      cursors.push(...changes.map((change) => change.cursor));
      cursor = nextCursor;
      done = !wasWriting && changes.length === 0 && cursor === (await end());
    }
    return cursors;
  }
  async function writer(n: number): Promise<void> {
    for (let round = 0; round < 30; round++) {
      const client = await open();
      // In the order of ids, so that there is no deadlock.
      const some = ids.filter((_, i) => (i * 7 + n * 3 + round) % 5 === 0);
      for (const id of some) {
        await rename(client, id);
        await client.query('SELECT pg_sleep(random() * 0.003)');
      }
      if (round % 7 === 6) await client.query('ROLLBACK').then(() => client.release());
      else await commit(client);
    }
  }
  const readers = [reader(3), reader(1000)];
  await Promise.all(Array.from({ length: 6 }, (_, n) => writer(n)));
  writing = false;
  const [one, other] = await Promise.all(readers);
  const { xact, id } = readCursor(after)!;
  const { rows } = await pool.query(
    `SELECT asset_id, xact::text, id FROM asset_changes c WHERE (xact, id) > ($1::xid8, $2::bigint) ORDER BY c.xact, c.id`,
    [xact, id],
  );
  expect(rows.length).toBeGreaterThan(500);
  const feed = after.split('-')[0];
  expect(one).toEqual(rows.map((row) => `${feed}-${row.xact}-${row.id}`));
  expect(other).toEqual(one);
  // The ids of an asset's changes are given while its row is locked.
  for (const asset of ids) {
    const own = rows.filter((row) => row.asset_id === asset).map((row) => Number(row.id));
    expect(own).toEqual(own.toSorted((a, b) => a - b));
  }
});

test('statements that change nothing of the copy write no change', async () => {
  await mirror('same');
  await pool.query(`
    INSERT INTO assets (id, company_id, state, next_at, listed) VALUES ('new', 'acme', 'pending', now(), '{}');
    UPDATE assets SET state = 'transferring', lease = lease + 1, lease_until = now() WHERE id = 'new';
    UPDATE assets SET state = 'gone', next_at = NULL WHERE id = 'new'`);
  const count = async () => (await pool.query('SELECT count(*) FROM asset_changes')).rows[0].count;
  const before = await count();
  await pool.query(`
    UPDATE assets SET detail = detail, state = state, record_key = record_key, transcript_state = 'pending', thumbnail_state = 'gave_up',
      name = 'another', project_id = 'p', verified_at = now(), lease = lease + 1 WHERE id = 'same';
    UPDATE assets SET state = 'pending', next_at = now(), record_key = NULL WHERE id = 'same';
    UPDATE assets SET state = 'mirrored', record_key = 'acme/same.asset.json' WHERE id = 'same'`);
  expect(await count()).toBe(before);
});

test('an asset that moves to another company keeps its record in the feed, and its new record is a change', async () => {
  await mirror('moving');
  const record = 'acme/moving.asset.json';
  const file = (crc32: string) => JSON.stringify({ [record]: { bytes: 3, etag: null, crc32 } });
  await pool.query(`UPDATE assets SET sidecar_files = $1 WHERE id = 'moving'`, [file('00000001')]);
  const after = await end();
  await pool.query(`UPDATE assets SET company_id = 'other', record_key = NULL, next_at = now() WHERE id = 'moving'`);
  await pool.query(`UPDATE assets SET record_key = $1, sidecar_files = $2, next_at = NULL WHERE id = 'moving'`, [
    record,
    file('00000002'),
  ]);
  await until('both', async () => (await page(after)).changes.length === 2);
  const recordOf = ({ objects }: Change) => objects?.find(({ key }) => key === record)?.crc32;
  const { changes } = await page(after);
  expect(ofPage({ changes })).toEqual(['metadata moving', 'metadata moving']);
  expect(changes.map(recordOf)).toEqual(['00000001', '00000002']);
});

test('a cursor of another feed, of the future or of pruned changes is expired, and another text is no cursor', async () => {
  const after = await end();
  const { feed, xact, id } = readCursor(after)!;
  expect(await store.changes.page('nonsense', 10)).toBe('unknown');
  expect(await store.changes.page(`00000000-${xact}-${id}`, 10)).toBe('expired');
  expect(await store.changes.page(`${feed}-${BigInt(xact) + 1_000_000_000n}-1`, 10)).toBe('expired');

  await mirror('old', 'older');
  const last = await end();
  const days = remembered.changes;
  await pool.query(`UPDATE asset_changes SET at = now() - interval '${days} days'`);
  await mirror('recent');
  await store.prune({ auditMs: Number.POSITIVE_INFINITY });
  expect((await page()).changes.length, 'what is in no file stays').toBeGreaterThan(2);
  const file = (await store.changes.nextFile())!;
  expect(await store.changes.fileWritten(file)).toBe(true);
  await store.prune({ auditMs: Number.POSITIVE_INFINITY });
  const found = await until('the recent one', async () => {
    const it = await page();
    return it.changes.length === 1 ? it : undefined;
  });
  expect(ofPage(found)).toEqual(['added recent']);
  expect(await page(last), 'a reader that had everything continues').toEqual(found);
  expect(await store.changes.page(after, 10)).toBe('expired');
});

test('in another cluster, or after a restore to an earlier time, a new feed begins', async () => {
  await mirror('before');
  const after = await end();
  await pool.query(`UPDATE change_feed SET place = 'another/1'`);
  await pool.query(`UPDATE asset_changes SET xact = (xact::text::numeric + 1000000000)::text::xid8`);
  expect(await store.changes.page(after, 10)).toBe('expired');
  const cursor = await store.changes.currentCursor();
  expect(readCursor(cursor)!.feed).not.toBe(readCursor(after)!.feed);
  await rename(pool, 'before');
  expect(
    ofPage(await until('a change', async () => ((await page(cursor)).changes.length > 0 ? page() : undefined))),
  ).toEqual(['metadata before']);
});
