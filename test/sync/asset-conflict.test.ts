import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { sidecarKeys } from '../../src/storage/keys.ts';
import { contentOf } from '../support/mirror.ts';
import { longAgo, newStage, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterEach(async () => {
  await stage.admin.clearFaults();
});
afterAll(async () => {
  await stage?.close();
});

describe('two companies that list the same asset id', () => {
  /** `first` has recorded the id; `second` lists it with what `override` says, read by somebody else. */
  async function twice(override: Record<string, unknown>) {
    const [first, second] = [await stage.company(), await stage.company()];
    const [id] = await stage.upload(first.companyId, 1, { override: { size: 5 } });
    await stage.sync(first.connectionId);
    const before = (await stage.store.assets.get(id!))!;
    const listing = { ...before.listed, ...override };
    await stage.admin.addFault({ endpoint: 'assets', companyId: second.companyId, body: { assets: [listing] } });
    const conflicts = () => stage.events({ kind: 'asset.conflict', assetId: id! });
    return { first, second, id: id!, before, conflicts };
  }

  test.each([{ size: 6 }, { uploadDate: longAgo + 7 }, { name: 'another name', projectId: 'another' }, {}])(
    'an asset id listed by two companies (%o) stays with the first, and one event reports the conflict',
    async (override) => {
      const { first, second, id, before, conflicts } = await twice(override);
      for (const mode of ['incremental', 'full'] as const) {
        const run = await stage.sync(second.connectionId, mode);
        expect(run).toMatchObject({ status: 'done', new: 0, changed: 0 });
        expect(run.error).toMatch(`asset ${id}: company ${first.companyId} has an asset with this id`);
        await stage.sync(first.connectionId, mode);
      }
      expect(await stage.store.assets.get(id)).toMatchObject({
        companyId: first.companyId,
        connectionId: first.connectionId,
        name: before.name,
        projectId: before.projectId,
        size: 5,
        uploadDate: longAgo,
      });
      expect((await stage.store.assets.get(id))!.revision).toBe(before.revision);
      expect(await conflicts()).toMatchObject([
        {
          connection_id: second.connectionId,
          asset_id: id,
          data: { companyId: second.companyId, recordedFor: first.companyId },
        },
      ]);
    },
  );

  test('an asset of two companies moves to the second when nobody can read the first any more', async () => {
    const { first, second, id } = await twice({ size: 6 });
    await stage.sync(second.connectionId);
    await stage.admin.setAccess(first.companyId, first.userId, false);
    await stage.sync(first.connectionId);
    expect(await stage.sync(second.connectionId)).toMatchObject({ changed: 1, error: null });
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId, size: 6 });
  });

  test('an unreadable listing of an asset that another company has changes no record; the sync reports it', async () => {
    const { second, id, before, conflicts } = await twice({ size: 'five' });
    const run = await stage.sync(second.connectionId);
    expect(run).toMatchObject({
      status: 'done',
      error: expect.stringMatching(`^asset ${id}: its listing cannot be read: size: [^;]*$`),
    });
    expect(await stage.store.assets.get(id)).toMatchObject({
      connectionId: before.connectionId,
      revision: before.revision,
      reason: null,
    });
    expect(await conflicts()).toEqual([]);
  });

  test('an asset that is gone from its company moves to another company that lists the same file', async () => {
    const { first, second, id, conflicts } = await twice({});
    await stage.admin.removeAsset(id);
    await stage.sync(first.connectionId, 'full');
    expect(await stage.sync(second.connectionId)).toMatchObject({ changed: 1, error: null });
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId, state: 'pending' });
    expect(await conflicts()).toEqual([]);
  });

  test('the record of an asset that moves to another company is written again, and names that one', async () => {
    const worker = workerOf(stage);
    const [first, second] = [await stage.company(), await stage.company()];
    const [id] = (await stage.upload(first.companyId, 1, { content: { text: 'moved' } })) as [string];
    await stage.sync(first.connectionId);
    await worker.complete(id);
    await stage.admin.removeAsset(id);
    await stage.sync(first.connectionId, 'full', { acceptGone: true });
    await stage.upload(second.companyId, 1, { id, content: { text: 'moved' } });
    await stage.sync(second.connectionId);
    const { state, media, nextAt } = (await stage.store.assets.get(id))!;
    expect({ state, isDue: nextAt !== null }).toEqual({ state: 'mirrored', isDue: true });
    await worker.complete(id);
    await worker.close();
    const record = await contentOf(stage.ground.storage, sidecarKeys.record(media!.key));
    expect(JSON.parse(record!.toString())).toMatchObject({ companyId: second.companyId, media: { key: media!.key } });
  });

  test('an asset with the id of a gone asset of another company has none of the folders of that one', async () => {
    const { first, second, id } = await twice({ size: 6 });
    await stage.query('UPDATE assets SET earlier_keys = $2 WHERE id = $1', [id, [`${first.companyId}/old/${id}/film`]]);
    await stage.admin.removeAsset(id);
    await stage.sync(first.connectionId, 'full');
    await stage.sync(second.connectionId);
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId, size: 6, earlierKeys: [] });
  });

  test('an asset moves to a second company once an operator accepts that the first one lacks it', async () => {
    const { first, second, id } = await twice({});
    await stage.admin.addFault({ endpoint: 'assets', companyId: first.companyId, body: { assets: [] } });
    expect(await stage.sync(second.connectionId)).toMatchObject({ changed: 0 });
    await stage.sync(first.connectionId, 'full', { companyId: first.companyId, acceptGone: true });
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({ changed: 1, error: null });
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId });
  });

  test('a sync of one named asset fails with the reason if another company has this id', async () => {
    const { first, second, id, before } = await twice({});
    await stage.admin.addFault({ endpoint: 'asset', assetId: id, body: { asset: before.listed } });
    const run = await stage.sync(second.connectionId, 'full', { assetIds: [id] });
    expect(run).toMatchObject({
      status: 'failed',
      error: expect.stringContaining(`company ${first.companyId} has an asset with this id`),
    });
    expect(stage.mirror.lines).toContainEqual(expect.objectContaining({ event: 'sync.failed', syncId: run.id }));
    expect(await stage.store.assets.get(id)).toMatchObject({
      companyId: first.companyId,
      connectionId: first.connectionId,
      revision: before.revision,
    });
  });
});
