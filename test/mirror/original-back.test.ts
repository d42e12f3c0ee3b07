import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

describe('a video whose original is missing', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const text = 'the original, which is longer';
  const textOf = async (key: string) => (await contentOf(scene.storage, key))?.toString();
  const requestsFor = (assetId: string, endpoint: 'media' | 'mp4') => scene.admin.requests({ assetId, endpoint });

  async function mirrorRendition(filename: string, more: object = {}): Promise<string> {
    const id = await scene.upload({
      name: filename,
      filename,
      mimeType: 'video/quicktime',
      assetType: 'videos',
      content: { text },
      originalGone: true,
      mp4: { text: 'ftyp: the rendition' },
      ...more,
    });
    await scene.admin.addFault({ endpoint: 'mp4', assetId: id, headers: { 'content-type': 'video/mp4' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await textOf(`acme/_/${id}/film.mp4`)).toBe('ftyp: the rendition');
    return id;
  }
  async function fullSync(): Promise<void> {
    await scene.resync();
    await scene.mirror.quiet();
  }

  test('its rendition is replaced by the original when a full sync finds that again', async () => {
    const id = await mirrorRendition('film.mov');
    await scene.admin.changeAsset(id, { originalGone: false });
    await fullSync();
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', key: `acme/_/${id}/film.mov` });
    expect(await scene.keys(id)).toEqual([`acme/_/${id}/film.mov`, `acme/_/${id}/film.mov.asset.json`]);
    expect(await textOf(`acme/_/${id}/film.mov`)).toBe(text);
    const record = JSON.parse((await textOf(`acme/_/${id}/film.mov.asset.json`))!);
    expect(record.media).toMatchObject({ variant: 'original', bytes: text.length });
  });

  test('the original takes the key of its rendition if both are MP4', async () => {
    const id = await mirrorRendition('film.mp4');
    await scene.admin.changeAsset(id, { originalGone: false });
    await scene.resync({ mode: 'full', assetIds: [id] });
    await scene.mirror.quiet();
    expect(await textOf(`acme/_/${id}/film.mp4`)).toBe(text);
    const record = JSON.parse((await textOf(`acme/_/${id}/film.mp4.asset.json`))!);
    expect(record.media).toMatchObject({ variant: 'original', bytes: text.length });
  });

  test('its rendition is taken again if the original is back, but always breaks off', async () => {
    const transcript = { language: 'de', durationSec: 3, text: 'ja', vtt: 'WEBVTT\n\nja\n', words: null };
    const id = await mirrorRendition('film.mov', { hasTranscript: true, transcript });
    await scene.mirror.quiet();
    await scene.admin.changeAsset(id, { originalGone: false });
    await scene.admin.addFault({ endpoint: 'media', assetId: id, cutAfter: 5, ignoreRange: true });
    await scene.admin.clearRequests();
    await fullSync();
    await until('the rendition to be back', async () => {
      const { state, transcript } = await scene.mirror.asset(id);
      return state === 'mirrored' && transcript === 'mirrored' && (await requestsFor(id, 'mp4')).length > 0;
    });
    await scene.mirror.quiet();
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', key: `acme/_/${id}/film.mp4` });
    expect(await textOf(`acme/_/${id}/film.mp4`)).toBe('ftyp: the rendition');
    expect(await textOf(`acme/_/${id}/film.mp4.vtt`)).toContain('ja');
    // It is fetched once, and not again until the next full sync.
    expect(await requestsFor(id, 'mp4')).toHaveLength(1);
  });

  test('its rendition stays, and is not fetched again, while the link to the original leads nowhere', async () => {
    const id = await mirrorRendition('film.mov');
    await fullSync();
    await scene.admin.changeAsset(id, { originalGone: false });
    await scene.admin.addFault({
      endpoint: 'media',
      assetId: id,
      status: 200,
      body: '<!DOCTYPE html><title>Gone</title>',
    });
    await fullSync();
    await scene.resync({ mode: 'full', assetIds: [id] });
    await scene.mirror.quiet();
    expect((await requestsFor(id, 'media')).length).toBeGreaterThanOrEqual(4);
    expect(await requestsFor(id, 'mp4')).toHaveLength(1);
    expect(await scene.mirror.asset(id)).toMatchObject({
      state: 'mirrored',
      key: `acme/_/${id}/film.mp4`,
      reason: null,
    });
    expect(await scene.keys(id)).toEqual([`acme/_/${id}/film.mp4`, `acme/_/${id}/film.mp4.asset.json`]);
  });
});
