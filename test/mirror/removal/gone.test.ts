import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { eraseAssets } from '../../../src/mirror/removal/erase.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { keysOf } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';
import { beforePurge, removeFrom } from './removing.ts';

const signal = new AbortController().signal;
const keyTemplate = '{companyId}/{projectId}/{assetId}/{filename}';

let stage: Stage;
let worker: ReturnType<typeof workerOf>;
beforeAll(async () => {
  stage = await newStage();
  worker = workerOf(stage);
});
afterAll(async () => {
  await worker?.close();
  await stage?.close();
});

const remove = (storage?: Storage) => removeFrom(stage, storage);

/** An asset that was mirrored, and that the library no longer has. */
async function goneFrom(companyId: string, connectionId: string): Promise<string> {
  const [id] = await stage.upload(companyId, 1, { content: { text: 'hello' } });
  await stage.sync(connectionId);
  await worker.complete(id!);
  await stage.admin.removeAsset(id!);
  await stage.sync(connectionId, 'full', { acceptGone: true });
  return id!;
}

test('an asset is removed only while its connection lists its company, and so would find it again', async () => {
  const { store, admin } = stage;
  const { companyId, connectionId } = await stage.company();
  const content = { text: 'hello' };
  const [back, gone] = await stage.upload(companyId, 2, { content });
  await stage.sync(connectionId);
  for (const id of [back!, gone!]) {
    await worker.complete(id);
    await admin.removeAsset(id);
  }
  await stage.sync(connectionId, 'full', { acceptGone: true });
  await store.connections.pause(connectionId);
  await stage.upload(companyId, 1, { id: back!, content });
  expect(await remove()).toBe(0);

  await stage.query(`UPDATE access SET listed_at = now() - interval '2 days' WHERE company_id = $1`, [companyId]);
  await store.connections.resume(connectionId);
  expect(await remove()).toBe(0);
  await stage.sync(connectionId, 'full');
  expect(await store.assets.get(back!)).toMatchObject({ state: 'mirrored' });
  expect(await remove()).toBe(1);
  expect(await store.assets.get(gone!)).toBeUndefined();
});

test('a listing whose missing assets are held removes nothing', async () => {
  const { companyId, connectionId } = await stage.company();
  const [, kept] = [await goneFrom(companyId, connectionId), await stage.upload(companyId, 9)];
  await stage.sync(connectionId);
  await stage.query(`UPDATE access SET listed_at = now() - interval '2 days' WHERE company_id = $1`, [companyId]);
  await stage.admin.addFault({ endpoint: 'assets', companyId, body: { assets: [] } });
  expect((await stage.sync(connectionId, 'full')).held).toMatch(/9 of 9/);
  expect(await remove()).toBe(0);
  await stage.admin.clearFaults();
  await stage.sync(connectionId, 'full');
  expect(kept).toHaveLength(9);
  expect(await remove()).toBe(1);
});

const cursorPages = (companyId: string, cursors: string[]) =>
  cursors.map((nextCursor, skip) => ({
    endpoint: 'assets' as const,
    companyId,
    skip,
    times: 1,
    body: { assets: [{ id: `${companyId} ${nextCursor}`, uploadDate: 0 }], nextCursor },
  }));

test.each<[string, (companyId: string) => Parameters<Stage['admin']['setFaults']>]>([
  ['whose last cursor led back', (companyId) => cursorPages(companyId, ['one', 'two', 'one', 'two', 'one'])],
  [
    'in which the library refused a repeated cursor',
    (companyId) => [...cursorPages(companyId, ['one', 'one']), { endpoint: 'assets', companyId, skip: 2, status: 410 }],
  ],
])('no asset is removed after a listing %s until its company is listed completely', async (_, faults) => {
  const { companyId, connectionId } = await stage.company();
  const id = await goneFrom(companyId, connectionId);
  await stage.admin.setFaults(...faults(companyId));
  expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', error: expect.any(String) });
  await stage.admin.clearFaults();
  expect(await remove()).toBe(0);
  // The assets of the pages above do not exist.
  await stage.sync(connectionId, 'full', { acceptGone: true });
  expect(await remove()).toBe(1);
  expect(await stage.store.assets.get(id)).toBeUndefined();
});

test('no asset is removed after a restore of the database until its company is listed again', async () => {
  const { companyId, connectionId } = await stage.company();
  const id = await goneFrom(companyId, connectionId);
  await stage.query(`UPDATE change_feed SET place = 'another/1'`);
  expect(await remove()).toBe(0);
  expect(await stage.store.assets.get(id)).toMatchObject({ state: 'gone' });
  await stage.sync(connectionId, 'full');
  expect(await remove()).toBe(1);
});

test('removals stay held while the company is not listed', async () => {
  const { store, mirror } = stage;
  const { companyId, connectionId } = await stage.company();
  await mirror.api('PATCH', `/connections/${connectionId}`, { holdReplaced: '0%,0' });
  const id = await goneFrom(companyId, connectionId);
  const held = async () => (await store.removals.upcoming(0, 0, 1)).held.filter((each) => each.companyId === companyId);
  expect(await remove()).toBe(0);
  const first = await held();
  expect(first).toMatchObject([{ held: { count: 1, sample: [id] } }]);
  await stage.query(`UPDATE access SET listed_at = now() - interval '2 days' WHERE company_id = $1`, [companyId]);
  expect(await remove()).toBe(0);
  expect(await held()).toEqual(first);
  await store.removals.accept({ companyId, at: new Date(), retentionMs: 0 });
  expect(await remove()).toBe(0);
  expect(await held()).toEqual([]);
  await stage.sync(connectionId, 'full');
  expect(await remove()).toBe(1);
});

test('the unfinished upload of an asset that is gone or skipped ends with its erasure', async () => {
  const { store, ground, mirror } = stage;
  const { companyId, connectionId } = await stage.company();
  const ids = await stage.upload(companyId, 3, { content: { text: 'evidence' } });
  await stage.sync(connectionId);
  const [gone, skipped] = ids as [string, string];
  for (const id of [gone, skipped]) {
    const upload = await ground.storage.uploads.begin(`${companyId}/_/${id}/file`, { bytes: 8 });
    await stage.query('UPDATE assets SET upload = $2 WHERE id = $1', [id, JSON.stringify(upload)]);
  }
  await stage.admin.removeAsset(gone);
  await stage.sync(connectionId, 'full', { acceptGone: true });
  await store.filters.skip([
    { id: skipped, reason: { code: 'skipped_by_filter', list: 'exclude', field: 'type', value: 'x' } },
  ]);
  expect(await store.assets.get(gone)).toMatchObject({ state: 'gone' });
  expect(await ground.leftovers()).not.toEqual([]);
  await mirror.api('POST', '/erasures', { assetIds: [gone, skipped], reason: 'requested' });
  await eraseAssets({
    store,
    storage: ground.storage,
    log: mirror.service.context.log,
    keyTemplate,
    leaseMs: 60_000,
    signal,
  });
  expect(await ground.leftovers()).toEqual([]);
});

test('a removal that was suspended does not remove what a worker has stored meanwhile', async () => {
  const { store, ground } = stage;
  const { companyId, connectionId } = await stage.company();
  const id = await goneFrom(companyId, connectionId);
  const storage = beforePurge(stage, async () => {
    await stage.query(`UPDATE assets SET lease_until = now() - interval '1 second' WHERE id = $1`, [id]);
    await stage.upload(companyId, 1, { id, content: { text: 'hello' } });
    await stage.sync(connectionId, 'full');
    await worker.complete(id);
    vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 61_000);
  });
  expect(await remove(storage)).toBe(0);
  vi.restoreAllMocks();
  const { media, recordKey } = (await store.assets.get(id))!;
  expect(await ground.storage.head(media!.key)).toMatchObject({ bytes: 5 });
  expect(await ground.storage.head(recordKey!)).toBeDefined();
});

test('an asset that comes back while it is removed gets its transcript and thumbnail again', {
  tags: 'slow',
}, async () => {
  const { store, admin, ground } = stage;
  const { companyId, connectionId } = await stage.company();
  const film = {
    name: 'clip.mp4',
    mimeType: 'video/mp4',
    assetType: 'videos',
    hasTranscript: true,
    transcript: { language: 'de', durationSec: 3, text: 'Hallo', vtt: 'WEBVTT\n\n', words: null },
    thumbnail: true,
    content: { text: 'film' },
  };
  const [id] = await stage.upload(companyId, 1, film);
  await stage.sync(connectionId);
  await worker.complete(id!);
  const sidecars = async () => (await keysOf(ground.storage)).filter((key) => key.includes(id!)).sort();
  const before = await sidecars();
  expect(before.length).toBeGreaterThan(4);
  await admin.removeAsset(id!);
  await stage.sync(connectionId, 'full');
  const storage = beforePurge(stage, async () => {
    await stage.upload(companyId, 1, { id: id!, ...film });
    await stage.sync(connectionId, 'full');
  });
  expect(await remove(storage)).toBe(0);
  await worker.complete(id!);
  expect(await sidecars()).toEqual(before);
  expect(await store.assets.get(id!)).toMatchObject({ transcriptState: 'mirrored', thumbnailState: 'mirrored' });
});

test('an asset that comes back while it is removed has no versions any more, and is mirrored again', async () => {
  const { store, admin, ground } = stage;
  const { companyId, connectionId } = await stage.company();
  const [id] = await stage.upload(companyId, 1, { content: { text: 'first' } });
  await stage.sync(connectionId);
  await worker.complete(id!);
  await admin.changeAsset(id!, { content: { text: 'second one' } });
  await stage.sync(connectionId, 'full');
  await worker.complete(id!);
  await admin.removeAsset(id!);
  await stage.sync(connectionId, 'full');
  expect(await store.versions.ofAsset(id!)).toHaveLength(1);

  const storage = beforePurge(stage, async () => {
    await stage.upload(companyId, 1, { id: id!, content: { text: 'second one' } });
    await stage.sync(connectionId, 'full');
  });
  expect(await remove(storage)).toBe(0);
  expect(await store.versions.ofAsset(id!)).toEqual([]);
  await worker.complete(id!);
  const { media } = (await store.assets.get(id!))!;
  expect(await ground.storage.head(media!.key)).toMatchObject({ bytes: 10 });
});
