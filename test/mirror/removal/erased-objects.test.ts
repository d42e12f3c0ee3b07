// @module-tag slow
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { eraseAssets } from '../../../src/mirror/removal/erase.ts';
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

  test.each(['{companyId}/{projectId}/{assetId}/{filename}', '{companyId}/{assetId}/{projectId}/{filename}'])(
    'files of a project with the id of the erased asset stay, with the keys %s',
    async (template) => {
      const other = await newScene({ environment: { KEY_TEMPLATE: template } });
      try {
        const id = await other.upload({ name: 'a.txt' });
        const kept = await other.upload({ name: 'b.txt', override: { projectId: id } });
        await other.admin.changeAsset(id, { override: { projectId: id } });
        await other.resync();
        await other.mirror.quiet();
        const { key } = await other.mirror.asset(kept);
        expect(await other.media(kept)).toBeDefined();
        expect(await erase(other, { assetIds: [id] })).toMatchObject({ objects: 2, left: 0 });
        expect(await other.storage.head(key)).toBeDefined();
        expect(await other.storage.head(`${key}.asset.json`)).toBeDefined();
      } finally {
        await other.close();
      }
    },
  );

  test('superseded versions are erased with their asset, and a rebuild does not bring them back', async () => {
    const id = await film();
    await scene.admin.changeAsset(id, { content: { text: 'another cut' }, filename: 'cut 2.mp4' });
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    const { store } = scene.mirror;
    expect(await store.versions.ofAsset(id)).toHaveLength(1);
    const kept = async () =>
      (await Array.fromAsync(scene.storage.list('_mirror/versions/'))).filter(({ key }) => key.includes(id));
    expect(await kept()).not.toEqual([]);
    const [record] = (await kept()).filter(({ key }) => key.endsWith('.json'));
    const content = (await contentOf(scene.storage, record!.key))!;
    expect((await erase(scene, { assetIds: [id] })).objects).toBeGreaterThan(6);
    expect(await kept()).toEqual([]);
    expect(await store.versions.ofAsset(id)).toEqual([]);
    expect(await scene.keys(id)).toEqual([]);

    await scene.storage.put(record!.key, content);
    const records = await newStore();
    const options = { onProblem: () => {}, signal };
    await rebuild({ store: records.store, storage: scene.storage, thumbnails: { mirror: true } }, options);
    expect(await records.store.versions.ofAsset(id)).toEqual([]);
    await records.close();
    await scene.storage.remove(record!.key);
  });

  test('objects in each folder in which an asset was before are erased', async () => {
    const id = await film({ projectId: undefined });
    const folders: string[] = [];
    for (const project of ['one', 'two', 'one', 'three']) {
      const content = { text: 'x'.repeat(100 + folders.length) };
      await scene.admin.changeAsset(id, { override: { projectId: project }, content });
      await scene.resync();
      await scene.mirror.quiet();
      const { key } = await scene.mirror.asset(id);
      folders.push(key.slice(0, key.lastIndexOf('/') + 1));
    }
    await scene.checked();
    expect(new Set(folders).size).toBe(3);
    // As after KEEP_VERSIONS.
    await scene.query(`DELETE FROM asset_versions WHERE asset_id = '${id}'`);
    for (const folder of folders) await scene.storage.put(`${folder}older version`, 'hello');
    await erase(scene, { assetIds: [id] });
    expect(await scene.keys(id)).toEqual([]);
  });

  test('an asset of which only superseded files are known is erased, alone or with its company', async () => {
    const records = await newStore();
    const { store } = records;
    const { storage } = scene;
    for (const scope of ['assetIds', 'companyId'] as const) {
      const id = await film();
      await scene.admin.changeAsset(id, { content: { text: 'another cut' } });
      await scene.resync();
      await scene.mirror.quiet();
      await scene.checked();
      await ask(records.url, `INSERT INTO companies VALUES ('acme', 'Acme') ON CONFLICT DO NOTHING`);
      await store.versions.add(await scene.mirror.store.versions.ofAsset(id));
      const kept = async () =>
        (await Array.fromAsync(storage.list('_mirror/versions/'))).filter(({ key }) => key.includes(id));
      expect(await kept()).not.toEqual([]);
      expect(await store.removals.unknownAssets([id, 'no-such-asset'])).toEqual(['no-such-asset']);
      const request = scope === 'assetIds' ? { assetIds: [id] } : { companyId: 'acme' };
      expect(await store.removals.previewErasure(request)).toEqual({ assets: 1, bytes: 0, protectedAssets: 0 });
      await store.removals.requestErasure({ scope: request, reason: 'requested', by: 'ada' });
      expect(await eraseAssets({ store, storage, log: silent, keyTemplate, leaseMs: 60_000, signal })).toBe(1);
      expect(await kept()).toEqual([]);
      expect(await store.versions.ofAsset(id)).toEqual([]);
      const [erasure] = await store.removals.erasures();
      expect(erasure).toMatchObject({ erased: 1 });
      expect(erasure!.objects).toBeGreaterThan(1);
    }
    await records.close();
  });

  test('the folder of an asset is purged if it is the first segment of its keys', async () => {
    const first = await newScene({ environment: { KEY_TEMPLATE: '{assetId}/{companyId}/{filename}' } });
    try {
      const id = await first.upload();
      await first.resync();
      await first.mirror.quiet();
      const { key } = await first.mirror.asset(id);
      expect(key.startsWith(`${id}/`)).toBe(true);
      // A file that the database does not know, as after a crash.
      await first.storage.put(`${id}/unknown.vtt`, Readable.from([Buffer.from('1')]));
      expect(await erase(first, { assetIds: [id] })).toMatchObject({ objects: 3, left: 0 });
      expect(await first.storage.head(`${id}/unknown.vtt`)).toBeUndefined();
    } finally {
      await first.close();
    }
  });
});
