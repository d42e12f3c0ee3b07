import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { longAgo, newStage, type Stage } from '../support/stage.ts';

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

describe('a resync by an operator', () => {
  test('a resync lists what the operator names, and moves the high-water mark only for a whole company', {
    tags: 'slow',
  }, async () => {
    const a = await stage.company();
    const b = await stage.company();
    const { connectionId } = await stage.person(a.companyId, b.companyId);
    const spring = (await stage.admin.addProject({ companyId: a.companyId, name: 'Spring' })).id;
    const [plain, inProject] = [
      ...(await stage.upload(a.companyId)),
      ...(await stage.upload(a.companyId, 1, { projectId: spring, uploadDate: longAgo + 1 })),
    ];
    const [video] = await stage.upload(a.companyId, 1, {
      projectId: spring,
      assetType: 'videos',
      uploadDate: longAgo + 2,
    });
    const [other] = await stage.upload(b.companyId, 1, { assetType: 'videos' });
    // Only later requests.
    await stage.store.syncs.request(connectionId, 'incremental');
    await stage.admin.addFault({ endpoint: 'me', status: 403 });
    await stage.run(connectionId);
    await stage.admin.clearFaults();

    const resync = async (request: object) => {
      const before = new Set([...(await stage.ids(a.companyId)), ...(await stage.ids(b.companyId))]);
      const { syncId } = await stage.mirror.api('POST', `/connections/${connectionId}/resync`, request);
      await stage.run(connectionId);
      const after = [...(await stage.ids(a.companyId)), ...(await stage.ids(b.companyId))];
      const run = (await stage.store.syncs.get(syncId))!;
      return { ...run, found: after.filter((id) => !before.has(id)) };
    };
    const marks = async () => [
      await stage.highWaterMark(connectionId, a.companyId),
      await stage.highWaterMark(connectionId, b.companyId),
    ];

    expect(
      await resync({ mode: 'full', projectId: spring, assetType: 'videos', companyId: a.companyId }),
    ).toMatchObject({
      status: 'done',
      pages: 1,
      found: [video],
    });
    expect(await resync({ mode: 'full', projectId: spring, companyId: a.companyId })).toMatchObject({
      found: [inProject],
    });
    expect(
      await resync({ mode: 'incremental', since: new Date(longAgo - 1).toISOString(), companyId: a.companyId }),
    ).toMatchObject({
      seen: 3,
      found: [plain],
    });
    expect(await marks()).toEqual([null, null]);
    expect(await resync({ mode: 'full', assetType: 'videos' })).toMatchObject({ seen: 2, found: [other] });
    expect(await marks()).toEqual([null, null]);
    expect(await resync({ mode: 'full', companyId: a.companyId })).toMatchObject({ seen: 3, found: [] });
    expect(await marks()).toEqual([longAgo + 2, null]);
  });

  test('a resync of named assets requests each and starts it afresh, and reports those that it cannot read', async () => {
    const { companyId, connectionId } = await stage.company();
    const [good, bad, gone] = await stage.upload(companyId, 3, { override: { size: 'x' } });
    await stage.sync(connectionId);
    await stage.admin.changeAsset(good!, { override: {} });
    await stage.admin.removeAsset(gone!);
    const run = await stage.sync(connectionId, 'full', { assetIds: [good!, bad!, gone!, 'nobody'] });
    expect(run.status).toBe('failed');
    expect(run.error).toContain(`read asset ${bad}: `);
    expect(run.error).toContain('asset.size');
    expect(run.error).toContain(`read asset ${gone}: the library answered 404`);
    expect(run.error).toContain('asset nobody: not in the database');
    const states = await Promise.all([good, bad, gone].map(async (id) => (await stage.store.assets.get(id!))?.state));
    expect(states).toEqual(['pending', 'failed', 'failed']);
  });

  test('a resync of named assets that must wait continues after the assets that it has requested', async () => {
    const { companyId, connectionId } = await stage.company();
    const assetIds = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.addFault({ endpoint: 'asset', skip: 3, retryAfter: 60 });
    const id = (await stage.store.syncs.request(connectionId, 'full', { assetIds }))!;
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
    await stage.admin.clearFaults();
    await stage.admin.clearRequests();
    await stage.query('UPDATE connections SET delayed_until = NULL');
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', error: null });
    const asked = await stage.admin.requests({ endpoint: 'asset' });
    expect(asked.map(({ assetId }) => assetId)).toEqual(assetIds.slice(3));
  });

  test('a resync of the same thousand named assets is the same request', async () => {
    const { connectionId } = await stage.company();
    const assetIds = Array.from({ length: 1000 }, (_, i) => `asset-${i}-${Math.random().toString(36)}`);
    const first = await stage.store.syncs.request(connectionId, 'full', { assetIds });
    expect(await stage.store.syncs.request(connectionId, 'full', { assetIds })).toBe(first);
    expect(await stage.store.syncs.request(connectionId, 'full', { assetIds: assetIds.slice(1) })).not.toBe(first);
  });

  test('a resync of a project lists it in every company, and one company that knows it is enough', async () => {
    const a = await stage.company();
    const b = await stage.company();
    const both = await stage.person(a.companyId, b.companyId);
    await stage.run(both.connectionId);
    const { id: projectId } = await stage.admin.addProject({ companyId: b.companyId, name: 'Spring' });
    const ids = await stage.upload(b.companyId, 1, { projectId });
    await stage.admin.addFault({ endpoint: 'assets', companyId: a.companyId, status: 404 });
    const run = await stage.sync(both.connectionId, 'full', { projectId });
    expect(run).toMatchObject({ status: 'done', new: 1, error: null });
    expect(await stage.ids(b.companyId)).toEqual(ids);

    await stage.admin.addFault({ endpoint: 'assets', companyId: b.companyId, status: 404 });
    expect(await stage.sync(both.connectionId, 'full', { projectId })).toMatchObject({ status: 'failed' });

    await stage.admin.addFault({ endpoint: 'assets', companyId: b.companyId, status: 404 });
    const skipsA = { exclude: { companyIds: [a.companyId] } };
    await stage.store.connections.changeSettings(both.connectionId, {}, () => ({
      settings: skipsA,
      applyFilters: false,
    }));
    expect(await stage.sync(both.connectionId, 'full', { projectId })).toMatchObject({ status: 'failed' });
  });

  test('a resync of a company that the connection cannot read fails', async () => {
    const { connectionId } = await stage.company();
    const other = await stage.company();
    const run = await stage.sync(connectionId, 'full', { companyId: other.companyId });
    expect(run).toMatchObject({
      status: 'failed',
      pages: 0,
      error: `company ${other.companyId}: this connection cannot read it`,
    });
    expect(await stage.listings(other.companyId)).toBe(0);
  });
});
