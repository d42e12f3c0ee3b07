import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { MirrorDeps } from '../../src/mirror/deps.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import type { UploadUnderWay } from '../../src/store/database/schema.ts';
import { grounds } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';

describe.each(grounds())('a worker that was suspended until another one got its asset ($name)', ({ redis, s3 }) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  beforeAll(async () => {
    stage = await newStage({ redis, s3 });
    worker = workerOf(stage);
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });

  /** Another worker gets the lease of an asset, and begins an upload in parts. */
  async function takeOver(id: string): Promise<UploadUnderWay> {
    const { store, ground } = stage;
    await stage.query('UPDATE assets SET lease_until = NULL, queued_at = now() WHERE id = $1', [id]);
    const lease = leaseOf((await store.assets.take(id, 60_000))!);
    const begun = await ground.storage.uploads.begin(`files/${id}`, { bytes: 10_000_000 });
    const upload: UploadUnderWay = { ...begun, variant: 'original', version: 'the next', etag: '"1"' };
    expect(await store.assets.saveUpload(lease, upload)).toBe(true);
    return upload;
  }

  /** `deps` for a worker that is suspended when it reads the settings of a connection, which it does before it fails an asset. */
  function suspended(during: () => Promise<void>): MirrorDeps {
    const { store } = worker.deps;
    const get: typeof store.connections.get = async (connectionId) => {
      await during();
      return store.connections.get(connectionId);
    };
    return { ...worker.deps, store: { ...store, connections: { ...store.connections, get } } };
  }

  test('an asset that a listing changes while it fails is tried again, and not reported as failed', async () => {
    const at = await stage.company();
    const [id] = (await stage.upload(at.companyId)) as [string];
    await stage.sync(at.connectionId, 'full');
    await stage.admin.addFault({ endpoint: 'asset', assetId: id, body: { asset: 'nonsense' } });
    await worker.work(
      id,
      suspended(async () => {
        await stage.query('UPDATE assets SET revision = revision + 1 WHERE id = $1', [id]);
      }),
    );
    expect(await stage.store.assets.get(id)).toMatchObject({ state: 'pending', nextAt: expect.any(Date) });
    expect(await stage.query(`SELECT FROM events WHERE kind = 'asset.failed' AND asset_id = $1`, [id])).toEqual([]);
  });

  test('a worker that lost its lease while its asset failed changes nothing, and reports nothing', async () => {
    const at = await stage.company();
    const [id] = await stage.upload(at.companyId);
    await stage.sync(at.connectionId, 'full');
    await stage.admin.addFault({ endpoint: 'asset', assetId: id!, body: { asset: 'nonsense' } });
    let upload: UploadUnderWay | undefined;
    const deps = suspended(async () => {
      upload ??= await takeOver(id!);
    });
    expect(await worker.work(id!, deps)).toMatchObject({ outcome: 'handed_back' });
    expect(await stage.store.assets.get(id!)).toMatchObject({
      state: 'transferring',
      attempts: 0,
      upload: { id: upload!.id },
    });
    expect(await stage.ground.storage.uploads.list(upload!)).toEqual(new Map());
    const failures = stage.mirror.lines.filter(({ event, assetId }) => event === 'asset.failed' && assetId === id);
    expect(failures).toEqual([]);
    await stage.ground.storage.uploads.abort(upload!);
  });

  test('a worker that is suspended right before it completes an upload completes nothing', async () => {
    const { companyId, connectionId } = await stage.company();
    const [id] = (await stage.upload(companyId, 1, { content: { seed: 'late', size: 6 * 2 ** 20 } })) as [string];
    await stage.sync(connectionId, 'full');
    // After a failed attempt, such a file goes in parts.
    await stage.query('UPDATE assets SET attempts = 1 WHERE id = $1', [id]);
    let upload: UploadUnderWay | undefined;
    const { store, storage } = worker.deps;
    const startTransfer: typeof store.assets.startTransfer = async (lease) => {
      const isHolder = await store.assets.startTransfer(lease);
      upload = await takeOver(id);
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 });
      return isHolder;
    };
    const deps = { ...worker.deps, store: { ...store, assets: { ...store.assets, startTransfer } } };
    try {
      expect(await worker.work(id, deps)).toMatchObject({ outcome: 'handed_back' });
    } finally {
      vi.useRealTimers();
    }
    expect((await Array.fromAsync(storage.list(''))).filter(({ key }) => key.includes(id))).toEqual([]);
    await storage.uploads.abort(upload!);
  });
});
