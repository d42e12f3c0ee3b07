// @module-tag slow
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { eraseAssets } from '../../../src/mirror/removal/erase.ts';
import { purgeAsset } from '../../../src/mirror/removal/purge-asset.ts';
import { rebuild } from '../../../src/verify/rebuild/rebuild.ts';
import { newStore, silent } from '../../store/records.ts';
import { ask } from '../../support/database.ts';
import { contentOf, richest } from '../../support/mirror.ts';
import { newScene, type Scene } from '../../support/scene.ts';
import { erase, keyTemplate, mirroredFilm, signal } from './erasing.ts';

describe('erasing assets', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene({ redis: richest().redis, s3: richest().s3 });
  });
  afterAll(() => scene?.close());

  const film = (more: object = {}) => mirroredFilm(scene, more);

  test('a rebuild respects tombstones, also of an asset whose record came back', async () => {
    const id = await film();
    const { key } = await scene.mirror.asset(id);
    const record = (await contentOf(scene.storage, `${key}.asset.json`))!;
    const media = (await contentOf(scene.storage, key))!;
    await erase(scene, { assetIds: [id] });
    await scene.storage.put(key, media);
    await scene.storage.put(`${key}.asset.json`, record);
    const records = await newStore();
    const options = { onProblem: () => {}, signal };
    await rebuild({ store: records.store, storage: scene.storage, thumbnails: { mirror: true } }, options);
    expect(await records.store.assets.get(id)).toBeUndefined();
    expect(await records.store.removals.tombstone(id)).toMatchObject({ erasedBy: 'ADMIN_TOKEN', reason: 'requested' });
    await records.close();
    await scene.storage.remove(key);
    await scene.storage.remove(`${key}.asset.json`);
  });

  test('an erased asset that is back with a backup of the database is erased again by a rebuild', async () => {
    const [id, kept] = [await film(), await film()];
    // The database as a backup has it: both assets are mirrored.
    const backup = await newStore();
    const { store } = backup;
    const { storage } = scene;
    const again = () => rebuild({ store, storage, thumbnails: { mirror: true } }, { onProblem: () => {}, signal });
    await again();
    await ask(backup.url, 'UPDATE assets SET lease = 3');
    await store.removals.hold({ kind: 'asset', ids: [id], reason: null, by: 'x' });
    expect(await store.removals.erasures()).toEqual([]);
    await erase(scene, { assetIds: [id] });

    await again();
    await again();
    expect(await store.removals.erasures()).toMatchObject([{ requestedBy: 'rebuild', waiting: 1, protectedAssets: 0 }]);
    expect(await eraseAssets({ store, storage, log: silent, keyTemplate, leaseMs: 60_000, signal })).toBe(1);
    expect(await store.assets.get(id)).toBeUndefined();
    expect(await store.removals.holds()).toEqual([]);
    expect(await store.assets.get(kept)).toMatchObject({ state: 'mirrored' });
    expect(await store.removals.tombstone(id)).toMatchObject({ erasedBy: 'ADMIN_TOKEN', reason: 'requested' });
    await again();
    expect(await store.removals.erasures()).toMatchObject([{ waiting: 0, erased: 1, finishedAt: expect.any(Date) }]);
    await backup.close();
  });

  test('all objects of a rebuilt asset are purged, also if another asset has files in its folder', async () => {
    const id = await film();
    const { store, close } = await newStore();
    try {
      const { storage } = scene;
      await rebuild({ store, storage, thumbnails: { mirror: true } }, { onProblem: () => {}, signal });
      const asset = { ...(await store.assets.get(id))!, versions: [] };
      await purgeAsset(storage, asset, { signal, isShared: async () => true });
      expect(await scene.keys(id)).toEqual([]);
    } finally {
      await close();
    }
  });
});
