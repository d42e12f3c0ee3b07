import { afterAll, expect, test } from 'vitest';
import { dayMs } from '../../../src/floor/units.ts';
import { ask } from '../../support/database.ts';
import { newStore, running } from '../records.ts';

const opened = await newStore();
const { connectionId } = await running(opened.store, 'acme');
const query = (sql: string) => ask(opened.url, sql);
afterAll(() => opened.close());

const ago = (days: number) => new Date(Date.now() - days * dayMs);
const eventsMs = 30 * dayMs;

test('files of a connection that cannot be verified are counted, and are not the oldest', async () => {
  await query(`INSERT INTO assets (id, connection_id, company_id, listed, state, mirrored_at, media, unverifiable_at)
    VALUES ('archived', '${connectionId}', 'acme', '{}', 'mirrored', now() - interval '1 year', '{}', now()),
      ('fine', '${connectionId}', 'acme', '{}', 'mirrored', now(), '{}', NULL)`);
  const { oldest, unverifiable } = await opened.store.assurance.verification(connectionId);
  expect(unverifiable).toBe(1);
  expect(Date.now() - oldest!.getTime()).toBeLessThan(dayMs);
  expect(await opened.store.assurance.verification('nobody')).toEqual({ oldest: null, unverifiable: 0 });
});

test('events are counted since the database has all of them, and erasures for the whole mirror only', async () => {
  await query('DELETE FROM events');
  await query(`UPDATE change_feed SET began_at = now() - interval '90 days'`);
  await query(`INSERT INTO events (kind, at) VALUES ('sync.failed', now() - interval '10 days')`);
  await query(`INSERT INTO tombstones VALUES ('${'ab'.repeat(32)}', now() - interval '10 days', 'ada', 'asked for')`);
  const month = { from: ago(60), to: new Date(), eventsMs, connectionId: undefined };
  // As in a database that was rebuilt.
  const young = await opened.store.assurance.happened(month);
  expect(young).toMatchObject({ events: { 'sync.failed': 1 }, erased: 1 });
  expect(Math.abs(Date.parse(young.eventsSince) - ago(10).getTime())).toBeLessThan(60_000);
  // The last one of its kind, which is kept longer.
  await query(`INSERT INTO events (kind, at) VALUES ('drill.passed', now() - interval '40 days')`);
  const old = await opened.store.assurance.happened({ ...month, connectionId });
  expect(old).toMatchObject({ events: {}, erased: null });
  expect(Math.abs(Date.parse(old.eventsSince) - ago(30).getTime())).toBeLessThan(60_000);
  expect((await opened.store.assurance.happened(month)).events).toEqual({ 'sync.failed': 1 });
});

test('replaced files are counted as long as changes are known', async () => {
  await query(`INSERT INTO asset_changes (xact, kind, asset_id, connection_id, company_id, at) VALUES
    ('1', 'replaced', 'fine', '${connectionId}', 'acme', now() - interval '5 days'),
    ('2', 'metadata', 'fine', '${connectionId}', 'acme', now() - interval '5 days'),
    ('3', 'replaced', 'fine', '${connectionId}', 'acme', now() - interval '70 days')`);
  const month = { from: ago(60), to: new Date(), eventsMs, connectionId };
  expect((await opened.store.assurance.happened(month)).replaced).toBe(1);
  expect((await opened.store.assurance.happened({ ...month, connectionId: 'nobody' })).replaced).toBe(0);
  // As in a database that was restored on another server.
  await opened.store.changes.renew();
  const restored = await opened.store.assurance.happened(month);
  expect(restored.replaced).toBe(0);
  expect(Date.now() - Date.parse(restored.eventsSince)).toBeLessThan(60_000);
});

test('the mirror began with its first connection, or its oldest copy after a rebuild', async () => {
  await query('UPDATE assets SET mirrored_at = now() WHERE mirrored_at IS NOT NULL');
  await query(`UPDATE connections SET connected_at = now() - interval '20 days'`);
  const begun = async () => Math.round((Date.now() - (await opened.store.assurance.begunAt())!.getTime()) / dayMs);
  expect(await begun()).toBe(20);
  await query(`UPDATE assets SET mirrored_at = now() - interval '300 days' WHERE id = 'fine'`);
  expect(await begun()).toBe(300);
});

test('the verifications of a month are listed, and since when all are known', async () => {
  await query(`INSERT INTO events (kind, at) VALUES ('drill.passed', now() - interval '90 days')`);
  const { verifications } = opened.store;
  const ended = (id: string, days: number, options = '{}') =>
    query(`INSERT INTO verifications (id, options, status, finished_at)
      VALUES ('${id}', '${options}', 'done', now() - interval '${days} days')`);
  await ended('before', 61);
  await ended('within', 20);
  const month = { from: ago(60), to: new Date(), connectionId };
  const known = await verifications.endedIn(month);
  expect(known.verifications.map(({ id }) => id)).toEqual(['within']);
  expect(known.since).toEqual(month.from);
  for (let n = 0; n < 50; n++) await ended(`scheduled ${n}`, 10, '{"scheduled": true}');
  const since = Math.round((Date.now() - (await verifications.endedIn(month)).since.getTime()) / dayMs);
  expect(since).toBe(10);
});

test('the first manifest shows whether earlier ones are only in the bucket', async () => {
  const { manifests, assurance } = opened.store;
  expect(await assurance.firstManifest()).toBeUndefined();
  for (const number of [1, 7, 8]) {
    await manifests.append({ number, day: `2026-01-0${number}`, sha256: '', keyId: null, envelope: '{}' });
  }
  expect(await assurance.firstManifest()).toEqual({ number: 7, day: '2026-01-07' });
});
