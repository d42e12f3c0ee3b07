import { afterAll, beforeAll, expect, test } from 'vitest';
import { removeGone } from '../../../src/mirror/removal/remove-gone.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const signal = new AbortController().signal;

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

const remove = () => {
  const { store, mirror, ground } = stage;
  return removeGone({ store, storage: ground.storage, log: mirror.service.context.log, leaseMs: 60_000, signal }, 0);
};

test('what a hold on a connection protects stays protected when another connection continues with it', async () => {
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

  expect(await store.removals.previewErasure({ assetIds: [id!] })).toMatchObject({ assets: 0, held: 1 });
  expect(await remove()).toBe(0);
  await store.removals.release({ kind: 'connection', ids: [connectionId] });
  expect(await remove()).toBe(1);
});
