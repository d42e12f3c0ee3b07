import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { endpointsOf, type Receiver } from './endpoints.ts';

let scene: Scene;
const { add, api, arrived, close, mirrored, query, remove } = endpointsOf(() => scene);
beforeAll(async () => {
  scene = await newScene({
    environment: { ENCRYPTION_KEYS: randomBytes(32).toString('base64'), WEBHOOK_ALLOW_PRIVATE: 'true' },
  });
});
afterAll(close);

describe('webhook endpoints', () => {
  test('an endpoint gets one event when an asset is mirrored, transcribed, replaced and gone', {
    tags: 'slow',
  }, async () => {
    const all = await add({ kinds: ['asset.mirrored', 'asset.replaced', 'asset.transcript', 'asset.gone'] });
    const others = [await mirrored(), await mirrored(), await mirrored()];
    await arrived(all, 'asset.mirrored', 3);
    const id = await scene.film();
    await scene.resync({ mode: 'incremental' });
    const [transcript] = await arrived(all, 'asset.transcript');
    expect(transcript!.data).toMatchObject({ assetId: id, companyId: 'acme', keys: expect.any(Array) });
    expect((transcript!.data.keys as string[]).length).toBeGreaterThan(0);
    await arrived(all, 'asset.mirrored', 4);

    await scene.admin.changeAsset(id, {
      uploadDate: Date.UTC(2024, 1, 29) + 1000,
      content: { text: 'a newer film' },
    } as never);
    await scene.resync();
    const [replaced] = await arrived(all, 'asset.replaced');
    const { key } = await scene.mirror.asset(id);
    expect(replaced!.data).toMatchObject({ assetId: id, connectionId: scene.connectionId, key, bytes: 12 });
    await arrived(all, 'asset.transcript', 2);

    await scene.admin.removeAsset(id);
    await scene.resync();
    expect((await arrived(all, 'asset.gone'))[0]!.data).toMatchObject({ assetId: id, name: 'clip.mp4' });
    expect(all.receiver.of('asset.mirrored').map(({ data }) => data.assetId)).toEqual(
      expect.arrayContaining([...others, id]),
    );
    expect(all.kinds().sort()).toEqual([
      'asset.gone',
      ...Array(4).fill('asset.mirrored'),
      'asset.replaced',
      ...Array(2).fill('asset.transcript'),
    ]);
    all.refuse();
    await remove(all);
    // Without an endpoint that takes them, they are not even written.
    const events = () => query(`SELECT FROM events WHERE kind = 'asset.mirrored'`);
    const before = (await events()).length;
    await mirrored();
    expect((await events()).length).toBe(before);
  });

  test('an endpoint without kinds gets differences in the bucket, and held, gained and lost companies', {
    tags: 'slow',
  }, async () => {
    const standard = await add();
    expect(standard.kinds).toBeDefined();
    const ids = [await mirrored(), await mirrored()];
    await scene.checked();
    const { key } = await scene.mirror.asset(ids[0]!);
    await scene.storage.remove(key);
    await scene.resync();
    const [differs] = await arrived(standard, 'bucket.differs');
    expect(differs!.data).toMatchObject({ verificationId: expect.any(String), missing: 1, repaired: 1 });
    await scene.mirror.quiet();

    for (const { id } of (await api('GET', '/assets?state=mirrored&limit=250')).assets)
      await scene.admin.removeAsset(id);
    await scene.resync();
    const [held] = await arrived(standard, 'company.held');
    expect(held!.data).toMatchObject({
      companyId: 'acme',
      companyName: 'Acme',
      kind: 'missing',
      count: expect.any(Number),
    });
    await scene.mirror.quiet();

    const beta = { connectionId: scene.connectionId, companyId: 'beta', companyName: 'Beta' };
    const userId = scene.library.users[0]!.id;
    await scene.admin.addCompany({ id: 'beta', name: 'Beta', userIds: [userId] });
    await scene.resync();
    expect((await arrived(standard, 'company.gained'))[0]!.data).toMatchObject(beta);
    await scene.admin.setAccess('beta', userId, false);
    await scene.resync();
    expect((await arrived(standard, 'company.lost'))[0]!.data).toMatchObject(beta);
    expect(standard.kinds()).toEqual(['bucket.differs', 'company.held', 'company.gained', 'company.lost']);
    standard.refuse();
    await remove(standard);
  });

  test('an endpoint gets only the events that match all its filters', async () => {
    await scene.admin.addProject({ id: 'p1', companyId: 'acme', name: 'Project' });
    const kinds = ['asset.mirrored'];
    const company = await add({ kinds, filters: { companyIds: ['acme'], connectionIds: [scene.connectionId] } });
    const videos = await add({ kinds, filters: { assetTypes: ['videos', 'audio'] } });
    const project = await add({ kinds, filters: { companyIds: ['acme'], projectIds: ['p1'] } });
    const film = await mirrored({ assetType: 'videos' });
    const other = await mirrored({ projectId: 'p1' });
    await arrived(company, 'asset.mirrored', 2);
    for (const one of [videos, project]) await arrived(one, 'asset.mirrored');
    const idsOf = ({ receiver }: { receiver: Receiver }) => receiver.received.map(({ data }) => data.assetId).sort();
    expect(idsOf(company)).toEqual([film, other].sort());
    expect(idsOf(videos)).toEqual([film]);
    expect(idsOf(project)).toEqual([other]);
    await remove(company, videos, project);
    const refusal = (filters: object) => api('POST', '/webhooks', { url: 'https://example.com', filters });
    await expect(refusal({ companyIds: ['nobody'] })).rejects.toThrow(/400.*unknown_name/);
    await expect(refusal({ connectionIds: ['nobody'] })).rejects.toThrow(/404.*connection_not_found/);
    await expect(api('POST', '/webhooks', { url: 'ftp://example.com' })).rejects.toThrow(/400.*url/);
  });
});
