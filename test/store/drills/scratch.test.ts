import { afterAll, beforeEach, expect, test } from 'vitest';
import type { RebuiltAsset } from '../../../src/store/assets/rebuild.ts';
import { openStore } from '../../../src/store/store.ts';
import { ask } from '../../support/database.ts';
import { newStore, silent } from '../records.ts';

const opened = await newStore();
const { store, url } = opened;
afterAll(() => opened.close());
beforeEach(() => ask(url, `DELETE FROM assets; DELETE FROM asset_changes`));

const asset = (id: string): RebuiltAsset => ({
  ...{ id, companyId: 'acme', projectId: null, assetType: null, name: 'A', size: 1, uploadDate: 1 },
  ...{ listed: { id }, detail: { id }, state: 'mirrored', reason: null, due: false },
  media: { key: id, bytes: 1, variant: 'original', checksums: { crc32: '00000000' }, etag: null, version: '' } as never,
  ...{ bytes: 1, recordKey: `${id}.asset.json`, mirroredAt: '2026-01-01T00:00:00.000Z' },
  ...{ transcriptState: 'none', transcriptKeys: null, thumbnailState: 'none', thumbnail: null, sidecarFiles: {} },
});
const counts = (schema: string) =>
  ask(
    url,
    `SELECT (SELECT count(*)::int FROM ${schema}.assets) AS assets, (SELECT count(*)::int FROM ${schema}.asset_changes) AS changes`,
  );
const schemas = async () =>
  (await ask(url, `SELECT nspname AS name FROM pg_namespace WHERE nspname LIKE 'asset_mirror_drill_%'`)).map(
    (row) => (row as { name: string }).name,
  );

test('a scratch schema has all tables, triggers and indexes, and the tables of the service stay as they are', async () => {
  const scratch = await store.openScratch();
  await scratch.store.rebuild.add([asset('a'), asset('b')]);
  await scratch.store.changes.renew();
  await scratch.store.rebuild.add([asset('c')]);
  expect(await counts(scratch.schema)).toEqual([{ assets: 3, changes: 1 }]);
  expect(await counts('public')).toEqual([{ assets: 0, changes: 0 }]);
  const indexes = (schema: string) =>
    ask(
      url,
      `SELECT indexname FROM pg_indexes WHERE schemaname = '${schema}' AND indexname NOT LIKE 'kysely%' ORDER BY 1`,
    );
  expect(await indexes(scratch.schema)).toEqual(await indexes('public'));
  await scratch.close();
  expect(await schemas()).toEqual([]);
});

test('a drill whose schema was dropped writes nowhere else', { tags: 'slow' }, async () => {
  const scratch = await store.openScratch();
  const next = await store.openScratch();
  expect(await schemas()).toEqual([next.schema]);
  await expect(scratch.store.rebuild.add([asset('late')])).rejects.toThrow('does not exist');
  await expect(scratch.store.removals.erasedAmong(['late'])).rejects.toThrow('does not exist');
  await scratch.close();
  await next.close();
  expect(await counts('public')).toEqual([{ assets: 0, changes: 0 }]);
});

test('a scratch schema sends no notices to the processes of the service', async () => {
  const { schema, close } = await store.openScratch();
  const other = await openStore({ url, log: silent });
  let notices = 0;
  other.onEvents(() => notices++);
  await expect.poll(() => notices, { message: 'the other process listens' }).toBe(1);
  await ask(url, `INSERT INTO ${schema}.events (kind) VALUES ('of the drill')`);
  await store.events.add({ kind: 'of the service' });
  await expect.poll(() => notices).toBe(2);
  await other.close();
  await close();
});
