import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Storage } from '../../../src/storage/storage.ts';
import { currentCopy } from '../../../src/verify/copy/select-copies.ts';
import { byOperator } from '../../support/reasons.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { until } from '../../support/until.ts';
import { workerOf } from '../../support/worker.ts';
import { beforePurge, removeFrom } from './removing.ts';

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

const remove = (storage?: Storage, store?: Stage['store']) => removeFrom(stage, storage, store);

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

  await store.connections.end(connectionId, byOperator);
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
  const storage = beforePurge(stage, async () => {
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
