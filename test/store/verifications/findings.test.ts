import { afterAll, beforeEach, expect, test } from 'vitest';
import type { Reason } from '../../../src/floor/reason-codes.ts';
import { ask } from '../../support/database.ts';
import { newStore, running } from '../records.ts';

const opened = await newStore();
const { connectionId } = await running(opened.store, 'acme');
const query = (sql: string) => ask(opened.url, sql);
afterAll(() => opened.close());
beforeEach(async () => {
  await query('DELETE FROM verifications');
  await query('DELETE FROM events');
  await query('DELETE FROM asset_history');
  await query('DELETE FROM assets');
  await query(`INSERT INTO assets
    (id, connection_id, company_id, listed, state, mirrored_at, verified_at, media, record_key, next_at)
    SELECT id, '${connectionId}', 'acme', '{}', 'mirrored', now() - interval '40 days', now() - interval '40 days',
      jsonb_build_object('key', id), id || '.asset.json', NULL
    FROM unnest(ARRAY['film', 'other']) AS id`);
  await query('DELETE FROM asset_versions');
  await query(`INSERT INTO asset_versions (asset_id, replaced_at, company_id, mirrored_at, reason, media, files, bytes)
    VALUES ('film', '2026-01-31T12:00:00.123Z', 'acme', now(), '{}', '{}', '[]', 5)`);
});

const differs: Reason = { code: 'wrong_checksum', checksum: 'CRC-32', expected: '0a', got: '0b', kind: 'media' };
const ofVersion = { ...differs, version: '20260131T120000123Z' };
const reasonAt = (key: string) => JSON.stringify(key.startsWith('_mirror/versions/') ? ofVersion : differs);
const findings = (of?: string) => opened.store.assurance.findings(of);
const openKeys = async () => (await findings()).examples.map(({ key }) => key);

/** A verification that took an hour and ended some hours ago. `lines`: mark and key. */
async function verification(id: string, hoursAgo: number, options: object, lines: [string, string][] = []) {
  const different = lines.length;
  await query(`INSERT INTO verifications (id, options, status, counts, started_at, finished_at)
    VALUES ('${id}', '${JSON.stringify(options)}', 'done', '{"missing": 0, "different": ${different}, "errors": 0}',
      now() - interval '${hoursAgo + 1} hours', now() - interval '${hoursAgo} hours')`);
  for (const [number, [mark, key]] of lines.entries()) {
    const kind = key.endsWith('.asset.json') ? 'record' : 'media';
    const remedy = key.startsWith('_mirror/versions/') ? 'NULL' : `'${kind === 'media' ? 'fetch' : 'write'}'`;
    const assetId = key.startsWith('other') ? 'other' : 'film';
    await query(`INSERT INTO verification_lines VALUES
      ('${id}', ${number}, '${mark}', '${key}', '${assetId}', '${kind}', ${remedy}, '${reasonAt(key)}', true)`);
  }
}
const damaged = (hoursAgo: number, key: string, repaired: boolean) =>
  query(`INSERT INTO events (kind, asset_id, at, data) VALUES ('asset.damaged', 'film', now() - interval '${hoursAgo} hours',
    '{"objects": [{"key": "${key}", "reason": ${reasonAt(key)}}], "repaired": ${repaired}}')`);
const verified = (hoursAgo: number) =>
  query(`UPDATE assets SET verified_at = now() - interval '${hoursAgo} hours' WHERE id = 'film'`);

test('what a verification found is open until the media is stored or read back', async () => {
  await verification('deep', 5, { deep: true }, [
    ['*', 'film'],
    ['-', 'other'],
  ]);
  expect(await findings()).toMatchObject({
    ...{ objects: 2, assets: 2, oldest: expect.any(Date) },
    examples: [
      { assetId: 'film', key: 'film', reason: differs, at: expect.any(Date), verificationId: 'deep' },
      { key: 'other' },
    ],
  });
  await verified(1);
  expect(await findings()).toMatchObject({ objects: 1, examples: [{ key: 'other' }] });
  expect(await findings(connectionId)).toMatchObject({ objects: 1 });
  expect(await findings('another')).toMatchObject({ objects: 0, oldest: null, examples: [] });
});

test('a later verification ends a finding only if it reads as much', async () => {
  await verification('deep', 5, { deep: true }, [
    ['*', 'film'],
    ['-', 'other'],
    ['*', '_mirror/versions/film/1/film'],
  ]);
  // The missing object is there again: sizes show that, but no content.
  await verification('scheduled', 4, { scheduled: true, repair: true });
  expect((await openKeys()).sort()).toEqual(['_mirror/versions/film/1/film', 'film']);
  await verification('shallow', 3, {});
  expect((await openKeys()).sort()).toEqual(['_mirror/versions/film/1/film', 'film']);
  await verification('deep again', 2, { deep: true }, [['*', 'film']]);
  expect(await findings()).toMatchObject({ objects: 1, examples: [{ verificationId: 'deep again' }] });
});

test('a sidecar is repaired once it was requested and written again', async () => {
  await verification('first', 5, {}, [['-', 'film.asset.json']]);
  await verified(5.5);
  expect(await openKeys()).toEqual(['film.asset.json']);
  await verification('repair', 3, { repair: true }, [['-', 'film.asset.json']]);
  // A worker has the asset, so nothing is requested.
  await query(`UPDATE assets SET queued_at = now()`);
  expect(await opened.store.contents.requestRepair('film', [{ kind: 'record', remedy: 'write' }])).toBe('moving');
  expect(await openKeys()).toEqual(['film.asset.json']);
  await query(`UPDATE assets SET queued_at = NULL`);
  expect(await opened.store.contents.requestRepair('film', [{ kind: 'record', remedy: 'write' }])).toBe('requested');
  expect(await openKeys()).toEqual(['film.asset.json']);
  await query(`UPDATE assets SET record_key = id || '.asset.json'`);
  expect(await findings()).toMatchObject({ objects: 0 });
});

test('what the scrub found is open until it is repaired, or a deep verification finds nothing', async () => {
  await damaged(5, 'film', false);
  expect(await findings()).toMatchObject({ objects: 1, examples: [{ key: 'film', verificationId: null }] });
  await verification('scheduled', 4, { scheduled: true });
  expect(await openKeys()).toEqual(['film']);
  await verification('deep', 3, { deep: true });
  expect(await openKeys()).toEqual([]);
  await damaged(2, 'film.asset.json', false);
  expect(await openKeys()).toEqual(['film.asset.json']);
  await damaged(1, 'film.asset.json', true);
  expect(await openKeys()).toEqual([]);
});

test('the findings of an asset are those that are open', async () => {
  const { assurance } = opened.store;
  await verification('deep', 5, { deep: true }, [
    ['*', 'film'],
    ['*', 'film.vtt'],
    ['*', 'other'],
  ]);
  // The verification read the media itself, and the transcript after it.
  await verified(5.5);
  await damaged(2, 'film.txt', false);
  expect(await assurance.findingsOfAsset('film')).toEqual([
    { assetId: 'film', key: 'film.txt', reason: differs, at: expect.any(Date), verificationId: null },
    { assetId: 'film', key: 'film.vtt', reason: differs, at: expect.any(Date), verificationId: 'deep' },
  ]);
  await verification('deep again', 1, { deep: true });
  expect(await assurance.findingsOfAsset('film')).toEqual([]);
});

test('a damaged superseded file is known until a deep verification finds it intact, or it is removed', async () => {
  const version = '_mirror/versions/film/1/film';
  await damaged(5, version, true);
  // Neither the repair of the rest nor a new file of the asset changes it.
  await verified(1);
  await query(`UPDATE assets SET record_key = id || '.asset.json'`);
  expect(await openKeys()).toEqual([version]);
  await verification('shallow', 3, {});
  expect(await openKeys()).toEqual([version]);
  await query(`UPDATE asset_versions SET removing_at = now()`);
  expect(await openKeys()).toEqual([]);
  await query(`UPDATE asset_versions SET removing_at = now() - interval '3 days'`);
  await verification('deep', 2, { deep: true });
  expect(await openKeys()).toEqual([]);
});

test('old findings count as open, those of erased assets do not', async () => {
  await verification('old', 35 * 24, {}, [['-', 'film']]);
  expect(await findings()).toMatchObject({ objects: 1 });
  await query(`DELETE FROM assets WHERE id = 'film'`);
  expect(await findings()).toMatchObject({ objects: 0 });
});

test('the scrub requests a repair and reports the damage at once, or neither', async () => {
  const repairs = [{ kind: 'media' as const, remedy: 'fetch' as const }];
  const found = { verified: [], copied: [], hashed: [], repairs, isUnreadable: false };
  const save = (text: string) => {
    const damaged = [{ key: 'film', text, reason: differs }];
    return opened.store.scrub.save({ id: 'film', connectionId }, { ...found, damaged });
  };
  const saved = () => query(`SELECT state, (SELECT count(*)::int FROM events) AS events FROM assets WHERE id = 'film'`);
  // PostgreSQL stores no NUL, so the event fails.
  await expect(save('\0')).rejects.toThrow();
  expect(await saved()).toEqual([{ state: 'mirrored', events: 0 }]);
  expect(await save('it differs')).toEqual({ isRepairRequested: true, isMoving: false });
  expect(await saved()).toEqual([{ state: 'pending', events: 1 }]);
  expect(await openKeys()).toEqual(['film']);
});
