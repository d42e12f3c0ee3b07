// @module-tag slow
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await newScene();
});
afterAll(async () => {
  await scene?.close();
});

const patch = (settings: object) => scene.mirror.api('PATCH', `/connections/${scene.connectionId}`, settings);
const fetched = async (assetId: string) => (await scene.admin.requests({ assetId, endpoint: 'media' })).length;
const differences = async () => {
  const { id } = await scene.mirror.api('POST', '/verify', {});
  const run = await until('the verification', async () => {
    const now = await scene.mirror.api('GET', `/verify/${id}`);
    return now.status === 'done' && now;
  });
  return { differences: run.differences, counts: run.counts };
};

test('narrower filters delete nothing and fetch nothing; wider ones fetch what was skipped', async () => {
  const film = await scene.film();
  const text = await scene.upload();
  await scene.resync();
  await scene.mirror.quiet();
  const keys = await scene.keys(film);
  expect(keys.length).toBeGreaterThan(4);

  await patch({ exclude: { assetTypes: ['videos'] } });
  const late = await scene.film({ name: 'late.mp4' });
  await scene.admin.changeAsset(film, { content: { text: 'another film' }, name: 'renamed.mp4' });
  await scene.admin.changeAsset(text, { name: 'renamed.bin' });
  await scene.resync();
  await scene.checked();
  await until('the new name', async () => (await scene.record(text))?.asset.name === 'renamed.bin');
  await scene.mirror.quiet();
  expect(await scene.mirror.asset(late)).toMatchObject({
    state: 'pending',
    skipped: true,
    reason: {
      code: 'skipped_by_filter',
      text: 'skipped by a filter: type videos',
      list: 'exclude',
      field: 'type',
      value: 'videos',
    },
    nextAt: null,
  });
  expect(await scene.mirror.asset(film)).toMatchObject({ state: 'mirrored', name: 'clip.mp4', skipped: false });
  expect([await fetched(late), await fetched(film)]).toEqual([0, 1]);
  expect(await scene.keys(film)).toEqual(keys);
  expect(await differences()).toMatchObject({ differences: 0, counts: { absent: 0, skipped: 1 } });

  // Mirrored assets stay complete, although new versions are skipped.
  await scene.storage.remove(keys.find((key) => key.endsWith('clip.mp4'))!);
  await scene.admin.changeAsset(film, { content: { text: 'hello' } });
  await scene.resync();
  await scene.checked();
  await scene.mirror.assetIn(film, 'mirrored');
  await until('the film', async () => (await scene.media(film))?.toString() === 'hello');

  await scene.admin.changeAsset(film, { content: { text: 'a third film' } });
  await patch({ exclude: null });
  await scene.mirror.assetIn(late, 'mirrored');
  await until('the third film', async () => (await scene.media(film))?.toString() === 'a third film');
  await scene.mirror.quiet();
  expect(await differences()).toMatchObject({ differences: 0, counts: { absent: 0, skipped: 0 } });
});

test('an asset that was due before the filters changed is skipped when it is leased', async () => {
  await scene.admin.setFaults({ endpoint: 'asset', status: 500 });
  const id = await scene.film();
  await scene.resync();
  await until('an attempt', async () => (await scene.mirror.asset(id))?.attempts > 0);
  const { connectionId, mirror } = scene;
  await mirror.store.connections.changeSettings(connectionId, {}, () => ({
    settings: { exclude: { assetTypes: ['videos'] } },
    applyFilters: false,
  }));
  await until('it to be skipped', async () => (await mirror.asset(id)).skipped);
  await scene.admin.clearFaults();
  await patch({ exclude: null });
  expect(await mirror.assetIn(id, 'mirrored')).toMatchObject({ reason: null });
});

test('an asset in transfer when the filters change is skipped if its attempt fails', async () => {
  const id = await scene.film({ overrideDetail: { asset: { download: { url: 7 } } } as never });
  await scene.admin.addFault({ endpoint: 'asset', assetId: id, latency: 10_000 });
  await scene.resync();
  const isLeased = async () =>
    (await scene.mirror.asset(id)) !== undefined && (await scene.mirror.api('GET', `/assets/${id}`)).working;
  await until('it to be leased', isLeased);
  await patch({ exclude: { assetTypes: ['videos'] } });
  expect([await isLeased(), (await scene.mirror.asset(id)).skipped]).toEqual([true, false]);
  await scene.admin.clearFaults();
  await until('it to be skipped', async () => (await scene.mirror.asset(id)).skipped);
  expect((await scene.mirror.asset(id)).state).toBe('pending');
  await patch({ exclude: null });
  await scene.mirror.assetIn(id, 'failed');
  await scene.admin.removeAsset(id);
});

test('a transfer follows the bandwidth of its connection, also when that changes during the transfer', async () => {
  const MiB = 2 ** 20;
  await patch({ bandwidth: '1MiB/s' });
  const id = await scene.upload({ content: { seed: 'slow', size: 90 * MiB } });
  await scene.resync();
  const started = await until('the transfer', async () => (await fetched(id)) > 0 && performance.now());
  const rate = () => scene.mirror.api('GET', '/status').then((status) => status.rate.bytesPerSecond);
  await until('a slow flow', async () => performance.now() - started > 4000 && (await rate()) < 1.2 * MiB);
  expect(await scene.mirror.asset(id)).toMatchObject({ state: 'transferring' });
  await patch({ bandwidth: '10MiB/s' });
  const isMoving = async () => (await scene.mirror.asset(id)).state === 'transferring';
  await until('a faster flow', async () => (await rate()) > 3 * MiB && (await isMoving()));
  await scene.mirror.assetIn(id, 'mirrored');
});

test('changed filters of the environment apply with the next start, without a listing', async () => {
  await patch({ exclude: null, bandwidth: null });
  await scene.restart({ INCLUDE_ASSET_TYPES: 'vidoes' });
  expect(scene.mirror.lines).toContainEqual(
    expect.objectContaining({ type: 'vidoes', known: expect.stringContaining('videos, selects') }),
  );
  const id = await scene.film({ name: 'of the environment.mp4' });
  await scene.resync();
  await scene.checked();
  expect(await scene.mirror.asset(id)).toMatchObject({
    skipped: true,
    reason: { text: 'skipped by a filter: type videos is not included' },
  });
  const runs = async () => (await scene.mirror.api('GET', '/syncs?limit=1')).syncs[0].id;
  const last = await runs();
  await scene.restart({ INCLUDE_ASSET_TYPES: 'videos' });
  await scene.mirror.assetIn(id, 'mirrored');
  expect(await runs()).toBe(last);

  // The same value is no change; another one is.
  const { filters } = scene.mirror.store;
  expect(await filters.changeDefaults({ includeTypes: ['videos'], excludeTypes: [] })).toBe(false);
  expect(await filters.changeDefaults({ includeTypes: [], excludeTypes: ['audio', 'videos'] })).toBe(true);
  expect(await filters.changeDefaults({ includeTypes: [], excludeTypes: ['videos', 'audio'] })).toBe(false);
});
