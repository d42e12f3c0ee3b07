import pg from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { eraseAssets } from '../../../src/mirror/removal/erase.ts';
import { removeGone } from '../../../src/mirror/removal/remove-gone.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { currentCopy } from '../../../src/verify/copy/select-copies.ts';
import { keysOf } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { until } from '../../support/until.ts';
import { workerOf } from '../../support/worker.ts';

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

const remove = (storage: Storage = stage.ground.storage, store = stage.store) => {
  const { mirror } = stage;
  return removeGone({ store, storage, log: mirror.service.context.log, leaseMs: 60_000, signal }, 0);
};

/** The storage of the stage. Something happens before its first purge. */
function beforePurge(act: () => Promise<void>): Storage {
  const { storage } = stage.ground;
  let first: Promise<void> | undefined;
  return {
    ...storage,
    async *purge(at, options) {
      first ??= act();
      await first;
      yield* storage.purge(at, options);
    },
  };
}

/** An asset that was mirrored, and that the library no longer has. */
async function goneFrom(companyId: string, connectionId: string): Promise<string> {
  const [id] = await stage.upload(companyId, 1, { content: { text: 'hello' } });
  await stage.sync(connectionId);
  await worker.complete(id!);
  await stage.admin.removeAsset(id!);
  await stage.sync(connectionId, 'full', { acceptGone: true });
  return id!;
}

test('what a hold on a connection protects stays protected when another connection continues with it', {
  tags: 'slow',
}, async () => {
  const { store } = stage;
  const { companyId, connectionId } = await stage.company();
  const other = await stage.person(companyId);
  const [id] = await stage.upload(companyId, 1, { content: { text: 'evidence' } });
  await stage.sync(connectionId);
  await worker.complete(id!);
  await store.removals.hold({ kind: 'connection', ids: [connectionId], reason: 'case 42', by: 'ada' });

  await store.connections.end(connectionId, 'she left');
  await stage.admin.changeAsset(id!, { name: 'another name' });
  await stage.sync(other.connectionId, 'full');
  await worker.complete(id!);
  expect(await store.assets.get(id!)).toMatchObject({ connectionId: other.connectionId, state: 'mirrored' });
  await stage.admin.removeAsset(id!);
  await stage.sync(other.connectionId, 'full');
  expect(await store.assets.get(id!)).toMatchObject({ state: 'gone' });

  expect(await store.removals.previewErasure({ assetIds: [id!] })).toMatchObject({ assets: 0, protectedAssets: 1 });
  expect(await remove()).toBe(0);
  await store.removals.release({ kind: 'connection', ids: [connectionId] });
  expect(await remove()).toBe(1);
});

test('an asset that moves out of a protected project before it is deleted stays protected', async () => {
  const { store, admin } = stage;
  const { companyId, connectionId } = await stage.company();
  const projectId = `project of ${companyId}`;
  await admin.addProject({ id: projectId, companyId, name: 'P' });
  const [id] = await stage.upload(companyId, 1, { projectId, content: { text: 'evidence' } });
  await stage.sync(connectionId);
  await worker.complete(id!);
  await store.removals.hold({ kind: 'project', ids: [projectId], reason: 'case 42', by: 'ada' });
  await admin.changeAsset(id!, { override: { projectId: 'another' } });
  await stage.sync(connectionId, 'full');
  await worker.complete(id!);
  expect(await store.assets.get(id!)).toMatchObject({ projectId: 'another', state: 'mirrored' });
  await admin.removeAsset(id!);
  await stage.sync(connectionId, 'full');
  expect(await remove()).toBe(0);
  const holds = (await store.removals.holds()).filter((hold) => hold.id === id);
  expect(holds).toMatchObject([{ kind: 'asset', reason: 'case 42', heldBy: 'ada' }]);
  await store.removals.release({ kind: 'asset', ids: [id!] });
  expect(await remove()).toBe(1);
});

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
  await stage.sync(connectionId, 'full');
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

test('an asset of which only superseded files are known is protected by the hold on any of them', async () => {
  const { store } = stage;
  const { companyId } = await stage.company();
  const [held, free] = [`held ${companyId}`, `free ${companyId}`];
  await stage.query(
    `INSERT INTO asset_versions (asset_id, replaced_at, company_id, project_id, mirrored_at, reason, media, files, bytes)
     SELECT 'only superseded', now() + i * interval '1 s', $1, project, now(), '{}', '{}', '[]', 0
     FROM unnest(ARRAY[$2, $3]) WITH ORDINALITY AS of (project, i)`,
    [companyId, held, free],
  );
  const preview = () => store.removals.previewErasure({ projectId: free });
  expect(await preview()).toMatchObject({ assets: 1, protectedAssets: 0 });
  await store.removals.hold({ kind: 'project', ids: [held], reason: null, by: 'ada' });
  expect(await preview()).toMatchObject({ assets: 0, protectedAssets: 1 });
});

test('a hold on an asset whose removal begins at that moment keeps its files, or says that it comes too late', async () => {
  const { store, admin, ground, mirror } = stage;
  const { companyId, connectionId } = await stage.company();
  const [id, other] = await stage.upload(companyId, 2, { content: { text: 'evidence' } });
  await stage.sync(connectionId);
  await worker.complete(id!);
  await admin.removeAsset(id!);
  await stage.sync(connectionId, 'full');
  const before = (await store.assets.get(id!))!;
  expect(currentCopy(before)).toBeDefined();

  const holdFirst: typeof store.removals.takeForRemoval = async (...request) => {
    const taken = await store.removals.takeForRemoval(...request);
    await store.removals.hold({ kind: 'asset', ids: [id!], reason: 'case 42', by: 'ada' });
    return taken;
  };
  const removals = { ...store.removals, takeForRemoval: holdFirst };
  expect(await remove(ground.storage, { ...store, removals })).toBe(0);
  expect(await ground.storage.head(before.media!.key)).toMatchObject({ bytes: 8 });
  expect(currentCopy((await store.assets.get(id!))!)).toEqual(currentCopy(before));

  await store.removals.release({ kind: 'asset', ids: [id!] });
  const hold = (kind: string, of: string) => mirror.api('POST', '/holds', { kind, ids: [of] }).catch(String);
  const answers: unknown[] = [];
  const storage = beforePurge(async () => {
    answers.push(await hold('asset', id!), await hold('connection', connectionId), await hold('asset', other!));
  });
  expect(await remove(storage)).toBe(1);
  const tooLate = expect.stringMatching(new RegExp(`being_removed.*too late.*${id}`, 's'));
  expect(answers).toEqual([tooLate, tooLate, { changed: 1 }]);
});

test('an asset that is protected while its erasure is requested is not erased', async () => {
  const { store, query } = stage;
  const { companyId, connectionId } = await stage.company();
  const [id] = await stage.upload(companyId, 1, { content: { text: 'evidence' } });
  await stage.sync(connectionId);
  const saving = new pg.Client({ connectionString: stage.ground.environment.DATABASE_URL! });
  await saving.connect();
  await saving.query(`BEGIN; INSERT INTO holds (kind, id, held_by) VALUES ('asset', '${id}', 'ada')`);
  let isRequested = false;
  const scope = { assetIds: [id!] };
  const requested = store.removals.requestErasure({ scope, reason: 'requested', by: 'ada' }).finally(() => {
    isRequested = true;
  });
  const waiting = `SELECT FROM pg_locks JOIN pg_database d ON d.oid = database AND datname = current_database()
    WHERE relation = 'holds'::regclass AND NOT granted`;
  await until('the request, or that it waits', async () => isRequested || (await query(waiting)).length > 0);
  await saving.query('COMMIT');
  await saving.end();
  expect(await store.removals.erasures(await requested)).toMatchObject([{ waiting: 0, protectedAssets: 1 }]);
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
  const storage = beforePurge(async () => {
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
  const storage = beforePurge(async () => {
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

  const storage = beforePurge(async () => {
    await stage.upload(companyId, 1, { id: id!, content: { text: 'second one' } });
    await stage.sync(connectionId, 'full');
  });
  expect(await remove(storage)).toBe(0);
  expect(await store.versions.ofAsset(id!)).toEqual([]);
  await worker.complete(id!);
  const { media } = (await store.assets.get(id!))!;
  expect(await ground.storage.head(media!.key)).toMatchObject({ bytes: 10 });
});
