import { randomUUID } from 'node:crypto';
import { afterAll, expect, test } from 'vitest';
import { listed, newStoreAndClient, running } from '../records.ts';

const opened = await newStoreAndClient();
const { store, client } = opened;
afterAll(() => opened.close());
const minute = 60_000;
const longestWaits = {
  lease: minute,
  pause: 60 * minute,
  asset: 90 * minute,
  transcript: 120 * minute,
  delivery: 480 * minute,
  chore: 1440 * minute,
};

/** How far each of these columns of a row lies ahead, in minutes; null where it is empty. */
async function ahead(table: string, id: string, ...columns: string[]): Promise<(number | null)[]> {
  const minutes = columns.map((column) => `round(extract(epoch FROM ${column} - now()) / 60)::float8 AS ${column}`);
  const { rows } = await client.query(`SELECT ${minutes.join()} FROM ${table} WHERE id = $1`, [id]);
  return columns.map((column) => rows[0][column] && rows[0][column] + 0);
}

async function newAsset(change: string): Promise<string> {
  const company = randomUUID();
  const { connectionId, lease, sync } = await running(store, company);
  const id = randomUUID();
  await store.syncs.recordPage({
    sync,
    lease,
    companyId: company,
    assets: [listed(id)],
    decide: () => ({ state: 'pending', reason: null, reset: true, due: true }),
    position: {},
  });
  await store.syncs.endSync(sync, lease, { status: 'done', error: null });
  await client.query(`UPDATE assets SET ${change} WHERE id = $1`, [id]);
  expect(await store.connections.get(connectionId)).toMatchObject({ syncUntil: null, delayedUntil: null });
  return id;
}

test('an inventory that was written in the future is forgotten, so that its day gets one', async () => {
  await client.query(`INSERT INTO inventories (day, written_at) VALUES (current_date - 1, now() - interval '1 day'),
    (current_date + 2, now() + interval '2 days')`);
  expect(await store.correctFuture(longestWaits)).toMatchObject({ inventoryDays: 1 });
  const { rows } = await client.query('SELECT count(*)::int AS days FROM inventories WHERE written_at <= now()');
  expect(rows).toEqual([{ days: 1 }]);
  await client.query('DELETE FROM inventories');
});

test('replacements that were found or released in the future can be accepted, and are forgotten in time', async () => {
  const id = await newAsset(`state = 'mirrored'`);
  await client.query(
    `INSERT INTO replacements (asset_id, company_id, found_at, released_at)
     SELECT id, company_id, now() + interval '1 year', now() + interval '1 year' FROM assets WHERE id = $1`,
    [id],
  );
  expect(await store.correctFuture(longestWaits)).toEqual({ replacements: 1 });
  const { rows } = await client.query('SELECT FROM replacements WHERE found_at <= now() AND released_at <= now()');
  expect(rows).toHaveLength(1);
  await client.query('DELETE FROM replacements');
});

test('files that were mirrored or verified in the future are found by a restore of today, and by the scrub', async () => {
  const file = `media = '{"key": "k", "version": "5:1000"}', next_at = NULL`;
  const mirrored = await newAsset(`state = 'mirrored', ${file}, mirrored_at = now() + interval '1 year'`);
  const verified = await newAsset(
    `state = 'mirrored', ${file}, mirrored_at = now() - interval '1 h', verified_at = now() + interval '1 year'`,
  );
  const damaged = await newAsset(
    `state = 'mirrored', ${file}, mirrored_at = now() - interval '1 h', unverifiable_at = now() + interval '1 year'`,
  );
  await client.query(
    `INSERT INTO asset_versions (asset_id, replaced_at, company_id, mirrored_at, reason, media, files, bytes)
     SELECT id, mirrored_at, company_id, mirrored_at - interval '1 h', '{}', media, '[]', 0 FROM assets WHERE id = $1`,
    [mirrored],
  );
  expect(await store.correctFuture(longestWaits)).toEqual({ files: 3, versions: 1 });
  expect(await ahead('assets', mirrored, 'mirrored_at')).toEqual([0]);
  expect(await ahead('assets', verified, 'mirrored_at', 'verified_at')).toEqual([-60, 0]);
  expect(await ahead('assets', damaged, 'unverifiable_at')).toEqual([0]);
  const [version] = await store.versions.ofAsset(mirrored);
  expect(version!.mirroredAt.getTime()).toBeLessThanOrEqual((await store.assets.get(mirrored))!.mirroredAt!.getTime());
  expect(await store.correctFuture(longestWaits)).toEqual({});
});

test('a date of deletion in the future stays, so that a clock that was behind makes no file due for removal', async () => {
  const gone = await newAsset(`state = 'gone', next_at = NULL, mirrored_at = now() - interval '1 h'`);
  await client.query(`UPDATE assets SET gone_at = now() + interval '1 year' WHERE id = $1`, [gone]);
  expect(await store.correctFuture(longestWaits)).toEqual({});
  const [minutes] = await ahead('assets', gone, 'gone_at');
  expect(minutes).toBeGreaterThan(300 * 24 * 60);
});

test('an asset whose lease was taken in the future can be removed', async () => {
  const leaseMs = 20_000;
  const gone = await newAsset(`state = 'gone', next_at = NULL, lease_until = now() + interval '30 days'`);
  expect(await store.removals.takeForRemoval(gone, { gone: true, leaseMs })).toMatchObject({ id: gone });
  expect(await store.removals.takeForRemoval(gone, { gone: true, leaseMs })).toBeUndefined();
});

test('verifications and drills of the future do not hide what later ones find', async () => {
  await client.query(`
    INSERT INTO verifications (id, status, requested_at, started_at, finished_at)
    VALUES ('v', 'done', now(), now() + interval '1 year', now() + interval '1 year')`);
  await client.query(`
    INSERT INTO drills (id, sample, scheduled, status, owner, until)
    VALUES ('d', 1, true, 'running', 'x', now() + interval '1 year')`);
  expect(await store.correctFuture(longestWaits)).toEqual({ verifications: 1, drills: 1 });
  expect(await ahead('verifications', 'v', 'requested_at', 'started_at', 'finished_at', 'until')).toEqual([
    0,
    0,
    0,
    null,
  ]);
  expect(await ahead('drills', 'd', 'requested_at', 'until', 'finished_at')).toEqual([0, 1, null]);
});

test('times further ahead than anything is planned are corrected; other times and empty ones stay', async () => {
  const { connectionId, sync } = await running(store, 'company');
  await client.query(
    `UPDATE connections SET sync_until = now() + interval '2 h', connected_at = now() + interval '2 h',
       delayed_until = now() + interval '2 days',
       last_sync_at = now() + interval '2 h', scheduled_sync_at = now() + interval '2 h',
       scheduled_full_at = now() + interval '2 h' WHERE id = $1`,
    [connectionId],
  );
  await client.query(`UPDATE syncs SET requested_at = now() + interval '2 h' WHERE id = $1`, [sync.id]);
  const waiting = await newAsset(`next_at = now() + interval '2 days'`);
  const due = await newAsset(`state = 'mirrored', next_at = now() + interval '2 days'`);
  const queued = await newAsset(`queued_at = now() + interval '2 h', lease_until = now() + interval '2 h'`);
  const legitimate = await newAsset(
    `next_at = now() + interval '75 minutes', reason = '{"code": "error", "text": "put off"}'`,
  );
  const film = await newAsset(
    `state = 'mirrored', next_at = now(), processing_since = now() + interval '1 h', transcript_deadline = now() + interval '3 h'`,
  );
  await client.query(`UPDATE access SET listed_at = now() + interval '2 h' WHERE connection_id = $1`, [connectionId]);
  await client.query(`INSERT INTO chores VALUES ('uploads', now() + interval '3 days')`);

  expect(await store.correctFuture(longestWaits)).toEqual({
    connections: 1,
    access: 1,
    syncs: 1,
    assets: 4,
    chores: 1,
  });

  expect(await ahead('connections', connectionId, 'sync_until', 'connected_at', 'delayed_until')).toEqual([1, 0, 0]);
  expect(await ahead('connections', connectionId, 'last_sync_at')).toEqual([0]);
  expect(await ahead('connections', connectionId, 'scheduled_sync_at', 'scheduled_full_at')).toEqual([0, 0]);
  expect(await ahead('connections', connectionId, 'refresh_until')).toEqual([null]);
  // Nobody knows when it was: the next full sync lists the company.
  const listed = 'SELECT listed_at FROM access WHERE connection_id = $1';
  expect((await client.query(listed, [connectionId])).rows).toEqual([{ listed_at: null }]);
  expect(await ahead('syncs', sync.id, 'requested_at', 'started_at', 'finished_at')).toEqual([0, 0, null]);
  expect(await ahead('assets', waiting, 'next_at', 'queued_at', 'lease_until')).toEqual([0, null, null]);
  expect(await ahead('assets', due, 'next_at')).toEqual([0]);
  expect(await ahead('assets', queued, 'queued_at', 'lease_until')).toEqual([0, 1]);
  expect(await ahead('assets', film, 'processing_since', 'transcript_deadline')).toEqual([0, 120]);
  expect(await ahead('assets', legitimate, 'next_at')).toEqual([75]);
  expect(await store.correctFuture(longestWaits)).toEqual({});
});
