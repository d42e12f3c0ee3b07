// @module-tag slow
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { connectAs } from '../support/stage.ts';
import { until } from '../support/until.ts';

const longAgo = Date.UTC(2024, 1, 29);

describe('a mirror that stays up to date', () => {
  let scene: Scene;
  beforeEach(async () => {
    scene = await newScene();
  });
  afterEach(async () => {
    await scene?.close();
  });
  const fetched = (assetId: string) => scene.admin.requests({ endpoint: 'media', assetId });

  test('a new name, tag or project only rewrites the record', async () => {
    const { id: projectId } = await scene.admin.addProject({ companyId: 'acme', name: 'Spring' });
    const id = await scene.upload({ name: 'before.bin', tags: ['raw'] });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    const { key } = await scene.mirror.asset(id);
    await scene.admin.clearRequests();
    for (const change of [{ name: 'after.bin' }, { tags: ['cut', 'final'] }, { projectId }]) {
      await scene.admin.changeAsset(id, change);
      await scene.resync();
      await until(`the record to say ${JSON.stringify(change)}`, async () => {
        const { asset } = (await scene.record(id)) ?? {};
        return asset && Object.entries(change).every(([name, value]) => `${asset[name]}` === `${value}`);
      });
      await scene.mirror.quiet();
      expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', key });
      expect(await scene.media(id)).toEqual(Buffer.from('hello'));
    }
    expect(await scene.mirror.asset(id)).toMatchObject({ projectId, name: 'after.bin' });
    expect(await fetched(id)).toEqual([]);
  });

  test('an unavailable asset is mirrored when it becomes ready', async () => {
    const id = await scene.upload({ status: 'unavailable' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'unavailable');
    await scene.admin.changeAsset(id, { status: 'ready', content: { text: 'here it is' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.media(id))?.toString()).toBe('here it is');
  });

  test('a deleted asset stays in the bucket, and is not downloaded again when it is restored', async () => {
    const [stays, goes] = [await scene.upload({ name: 'stays' }), await scene.upload({ name: 'goes' })];
    await scene.resync();
    for (const id of [stays, goes]) await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    const keys = await scene.keys(goes);
    await scene.admin.removeAsset(goes);
    await scene.resync();
    const gone = await scene.mirror.assetIn(goes, 'gone');
    expect(gone.reason.text).toBe('no longer in the library; its objects are still in the bucket');
    expect(await scene.keys(goes)).toEqual(keys);

    await scene.upload({ id: goes, name: 'goes' });
    await scene.admin.clearRequests();
    await scene.resync();
    await scene.mirror.assetIn(goes, 'mirrored');
    await scene.mirror.quiet();
    expect(await fetched(goes)).toEqual([]);
    expect(await scene.keys(goes)).toEqual(keys);
  });

  test('a disconnected mirror sends no requests, and mirrors what has arrived after the reconnect', async () => {
    const first = await scene.upload();
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(first, 'mirrored');
    await scene.admin.endConnections();
    await scene.resync({ mode: 'incremental' });
    await until('the end to be noticed', async () => {
      const { status } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
      return status === 'disconnected';
    });
    await scene.admin.clearRequests();

    const later = [1, 2, 3].map((day) => longAgo + day * 86_400_000);
    const missed = await Promise.all(later.map((uploadDate) => scene.upload({ uploadDate })));
    expect(await scene.admin.requests()).toEqual([]);
    await scene.mirror.connect();
    for (const id of missed) await scene.mirror.assetIn(id, 'mirrored');
    const result = await until('what was filled', () =>
      scene.mirror.lines.find((line) => line.msg === 'caught up after reconnect'),
    );
    expect(result).toMatchObject({
      connectionId: scene.connectionId,
      new: 3,
      from: new Date(later[0]!).toISOString(),
      to: new Date(later[2]!).toISOString(),
    });
    expect(await fetched(first)).toEqual([]);
  });

  test('another connection of the same company continues without gaps or second downloads', async () => {
    const user = await scene.admin.addUser({ id: 'second', name: 'Second', email: 'second@example.com' });
    await scene.admin.setAccess('acme', user.id, true);
    const second = await connectAs(scene.mirror, user.id);
    await scene.mirror.quiet();

    const done = await Promise.all([1, 2, 3].map((n) => scene.upload({ name: `done ${n}` })));
    await scene.resync();
    for (const id of done) await scene.mirror.assetIn(id, 'mirrored');
    const waiting = await Promise.all(
      Array.from({ length: 12 }, (_, n) => scene.upload({ name: `waiting ${n}`, uploadDate: longAgo + n })),
    );
    // The first ones hang until the connection has ended, and the others wait behind them.
    for (const assetId of waiting) await scene.admin.addFault({ endpoint: 'asset', assetId, latency: 120_000 });
    await scene.resync();
    await until('all to be known', async () => (await scene.mirror.api('GET', '/status')).assets.total === 15);

    const users = (await scene.admin.connections()).map(({ userId }) => userId).filter((id) => id !== user.id);
    await scene.admin.endConnections(users[0]!);
    await scene.admin.clearFaults();
    await scene.resync().catch(() => {});
    await until('the end to be noticed', async () => {
      const { status } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
      return status === 'disconnected';
    });
    // Uploaded after the one has ended, before the other has listed again.
    const after = await scene.upload({ name: 'after', uploadDate: longAgo + 60_000 });
    await scene.mirror.api('POST', `/connections/${second}/resync`, { mode: 'incremental' });
    for (const id of [...done, ...waiting, after]) await scene.mirror.assetIn(id, 'mirrored');
    for (const id of [...done, ...waiting, after]) {
      expect((await fetched(id)).length, `fetches of ${(await scene.mirror.asset(id)).name}`).toBe(1);
    }
    for (const id of [...waiting, after]) expect(await scene.mirror.asset(id)).toMatchObject({ connectionId: second });
  });
});
