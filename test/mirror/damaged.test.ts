// @module-tag slow
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';

/** One wrong byte, without another length. */
const damage = (scene: Scene, key: string) => scene.storage.put(key, 'the originaL film');

describe.each([
  { name: 'a directory', s3: undefined },
  ...(inject('s3') ? [{ name: inject('s3')!.name, s3: inject('s3') }] : []),
])('a damaged file in $name', ({ s3 }) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene({ s3, environment: { CONNECTION_CONCURRENCY: '4' } });
  });
  afterEach(async () => {
    await scene.admin.clearFaults();
  });
  afterAll(() => scene?.close());

  async function mirrored(filename: string): Promise<{ id: string; key: string }> {
    const id = await scene.upload({
      ...{ name: filename, filename, mimeType: 'video/mp4', assetType: 'videos' },
      ...{ content: { text: 'the original film' }, mp4: { text: 'ftyp: the rendition' } },
    });
    await scene.admin.addFault({ endpoint: 'mp4', assetId: id, headers: { 'content-type': 'video/mp4' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    // Otherwise the verification after the sync may find the damage first.
    await scene.checked();
    return { id, key: (await scene.mirror.asset(id)).key };
  }
  async function verified() {
    const { id } = await scene.mirror.api('POST', '/verify', { repair: true, deep: true });
    await scene.checked();
    return scene.mirror.api('GET', `/verify/${id}`);
  }
  const textOf = async (id: string) => (await scene.media(id))?.toString();

  test.each([
    ['film.mov', { originalGone: true }],
    ['film.mp4', { originalGone: true }],
    ['film.mov', { overrideDetail: { asset: { download: { url: null } } } }],
  ])(
    '%s is not replaced by the mp4 rendition if the library has no original (%j); the asset fails with the remedy',
    async (filename, change) => {
      const { id, key } = await mirrored(filename);
      await scene.admin.changeAsset(id, change);
      await damage(scene, key);
      expect(await verified()).toMatchObject({ counts: { different: 1, repaired: 1 } });
      const reason = { code: 'damaged_original', key };
      expect(await scene.mirror.assetIn(id, 'failed')).toMatchObject({ reason });
      expect(await textOf(id)).toBe('the originaL film');

      await scene.storage.remove(key);
      await scene.mirror.api('POST', `/assets/${id}/retry`);
      expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ variant: 'mp4' });
      expect(await textOf(id)).toBe('ftyp: the rendition');
    },
  );

  test.each(['the originaL film', 'the orig'])(
    'a damaged file (%s) whose asset has become unavailable stays a difference',
    async (text) => {
      const { id, key } = await mirrored('lost.mp4');
      await scene.admin.changeAsset(id, { status: 'unavailable' });
      await scene.storage.put(key, text);
      expect((await verified()).differences).toBeGreaterThan(0);
      expect(await scene.mirror.assetIn(id, 'failed')).toMatchObject({ reason: { code: 'no_file' } });
      expect((await verified()).differences).toBeGreaterThan(0);
      expect(await textOf(id)).toBe(text);
    },
  );

  test('an intact file with another ETag, as after a move to another bucket, is not fetched again', async () => {
    const { id, key } = await mirrored('moved.mp4');
    await scene.query(`UPDATE assets SET media = media || '{"etag": "of the other bucket"}' WHERE id = '${id}'`);
    await scene.admin.clearRequests();
    await scene.query(`UPDATE assets SET state = 'pending', next_at = now() WHERE id = '${id}'`);
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await scene.admin.requests({ assetId: id, endpoint: 'media' })).toEqual([]);
    const etag = (await scene.storage.head(key))!.etag ?? null;
    expect((await scene.mirror.store.assets.get(id))!.media!.etag).toBe(etag);
  });
});
