import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { answer, type Bare, startBare } from '../source/bare.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** A server near the mirror that is not part of the library. Both hosts lead to it. */
describe.each(['localhost', '0.0.0.0'])('a link to %s', (host) => {
  let scene: Scene;
  let inside: Bare;
  let url: string;
  beforeAll(async () => {
    scene = await newScene();
    inside = await startBare();
    url = `http://${host}:${new URL(inside.url).port}/latest/credentials`;
  });
  beforeEach(() => inside.answer(answer(200, 'the secret', { 'content-type': 'video/mp4' })));
  afterAll(async () => {
    await scene?.close();
    await inside?.close();
  });
  const film = { name: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos', override: { size: null } };
  const refused = `${host}.*not a public address; add ${host} to DOWNLOAD_ALLOW_PRIVATE`;

  test.each([
    ['url', { overrideDetail: { asset: { download: { url: '' } } } }],
    ['mp4Url', { originalGone: true, overrideDetail: { asset: { download: { mp4Url: '' } } } }],
  ])(
    'a private address in download.%s is never requested, and the asset fails with the reason',
    async (field, asset) => {
      Object.assign(asset.overrideDetail.asset.download, { [field]: url });
      const id = await scene.upload({ ...film, ...asset });
      await scene.resync();
      const { reason } = await scene.mirror.assetIn(id, 'failed');
      expect(reason.text).toMatch(new RegExp(refused));
      expect(JSON.stringify(reason)).not.toContain('credentials');
      expect(await scene.keys(id)).toEqual([]);
      expect(inside.requests).toEqual([]);
    },
  );

  test('a private address in a redirect is never requested', async () => {
    const id = await scene.upload(film);
    await scene.admin.addFault({ endpoint: 'media', assetId: id, status: 302, headers: { location: url } });
    await scene.resync();
    expect((await scene.mirror.assetIn(id, 'failed')).reason.text).toMatch(new RegExp(refused));
    expect(inside.requests).toEqual([]);
  });

  test('a private address in thumbnailUrl is never requested, and the media is mirrored', {
    tags: 'slow',
  }, async () => {
    const id = await scene.upload({ thumbnail: true, overrideDetail: { asset: { thumbnailUrl: url } } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('the reason', async () => new RegExp(refused).test((await scene.mirror.asset(id)).reason?.text ?? ''));
    expect(inside.requests).toEqual([]);
  });

  test.each([host, 'true'])(
    'a private address is requested with DOWNLOAD_ALLOW_PRIVATE=%s',
    { tags: 'slow' },
    async (allowed) => {
      const id = await scene.upload({ ...film, overrideDetail: { asset: { download: { url } } } });
      await scene.restart({ DOWNLOAD_ALLOW_PRIVATE: `cdn.internal, ${allowed}`.replace(/.*true/, 'true') });
      await scene.resync();
      await scene.mirror.assetIn(id, 'mirrored');
      expect(String(await scene.media(id))).toBe('the secret');
    },
  );
});
