import { afterAll, expect, test } from 'vitest';
import { dayMs } from '../../../src/floor/units.ts';
import { ask } from '../../support/database.ts';
import { newStore, running } from '../records.ts';

const opened = await newStore();
const { connectionId } = await running(opened.store, 'acme');
const query = (sql: string) => ask(opened.url, sql);
afterAll(() => opened.close());

const ago = (days: number) => new Date(Date.now() - days * dayMs);
const changesMs = 31 * dayMs;

test('files of a connection that cannot be verified are counted, and are not the oldest', async () => {
  await query(`INSERT INTO assets (id, connection_id, company_id, listed, state, mirrored_at, media, unverifiable_at)
    VALUES ('archived', '${connectionId}', 'acme', '{}', 'mirrored', now() - interval '1 year', '{}', now()),
      ('fine', '${connectionId}', 'acme', '{}', 'mirrored', now(), '{}', NULL)`);
  const { oldest, unverifiable } = await opened.store.assurance.verification(connectionId);
  expect(unverifiable).toBe(1);
  expect(Date.now() - oldest!.getTime()).toBeLessThan(dayMs);
  expect(await opened.store.assurance.verification('nobody')).toEqual({ oldest: null, unverifiable: 0 });
});

test('erasures are counted for the whole mirror only', async () => {
  await query(`INSERT INTO tombstones VALUES ('${'ab'.repeat(32)}', now() - interval '10 days', 'ada', 'asked for')`);
  const month = { from: ago(60), to: new Date(), changesMs, connectionId: undefined };
  expect(await opened.store.assurance.happened(month)).toMatchObject({ erased: 1 });
  expect(await opened.store.assurance.happened({ ...month, connectionId })).toMatchObject({ erased: null });
});

test('replaced files are counted as long as changes are known', async () => {
  await query(`UPDATE change_feed SET began_at = now() - interval '90 days'`);
  await query(`INSERT INTO asset_changes (xact, kind, asset_id, connection_id, company_id, at) VALUES
    ('1', 'replaced', 'fine', '${connectionId}', 'acme', now() - interval '5 days'),
    ('2', 'metadata', 'fine', '${connectionId}', 'acme', now() - interval '5 days'),
    ('3', 'replaced', 'fine', '${connectionId}', 'acme', now() - interval '70 days')`);
  const month = { from: ago(60), to: new Date(), changesMs, connectionId };
  const known = await opened.store.assurance.happened(month);
  expect(known.replaced).toBe(1);
  expect(Math.abs(Date.parse(known.replacedSince) - ago(31).getTime())).toBeLessThan(60_000);
  expect((await opened.store.assurance.happened({ ...month, connectionId: 'nobody' })).replaced).toBe(0);
  const before = { ...month, from: ago(60), to: ago(40) };
  expect((await opened.store.assurance.happened(before)).replaced).toBeNull();
  // As in a database that was restored on another server.
  await opened.store.changes.renew();
  const restored = await opened.store.assurance.happened(month);
  expect(restored.replaced).toBeNull();
  expect(Date.now() - Date.parse(restored.replacedSince)).toBeLessThan(60_000);
});

test('the mirror began with its first connection, or its oldest copy after a rebuild', async () => {
  await query('UPDATE assets SET mirrored_at = now() WHERE mirrored_at IS NOT NULL');
  await query(`UPDATE connections SET connected_at = now() - interval '20 days'`);
  const begun = async () => Math.round((Date.now() - (await opened.store.assurance.begunAt())!.getTime()) / dayMs);
  expect(await begun()).toBe(20);
  await query(`UPDATE assets SET mirrored_at = now() - interval '300 days' WHERE id = 'fine'`);
  expect(await begun()).toBe(300);
});

test('the verifications of a month are listed', async () => {
  const { verifications } = opened.store;
  const ended = (id: string, days: number) =>
    query(`INSERT INTO verifications (id, options, status, finished_at)
      VALUES ('${id}', '{}', 'done', now() - interval '${days} days')`);
  await ended('before', 61);
  await ended('within', 20);
  const found = await verifications.endedIn({ from: ago(60), to: new Date(), connectionId });
  expect(found.map(({ id }) => id)).toEqual(['within']);
});

test('the first manifest shows whether earlier ones are only in the bucket', async () => {
  const { manifests, assurance } = opened.store;
  expect(await assurance.firstManifest()).toBeUndefined();
  for (const number of [1, 7, 8]) {
    await manifests.append({ number, day: `2026-01-0${number}`, sha256: '', keyId: null, envelope: '{}' });
  }
  expect(await assurance.firstManifest()).toEqual({ number: 7, day: '2026-01-07' });
});
