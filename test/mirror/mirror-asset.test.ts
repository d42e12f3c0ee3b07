import { rm, writeFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { bytesOf } from '../../src/library/index.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

describe('an asset that is mirrored', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene();
  });
  afterEach(async () => {
    await scene.admin.clearFaults();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const requestsFor = (assetId: string, endpoint: string) =>
    scene.admin.requests({ assetId, endpoint: endpoint as never });

  test('a video in processing is requested again until it is ready, and spends no attempt', {
    tags: 'slow',
  }, async () => {
    const id = await scene.upload({
      name: 'clip.mp4',
      mimeType: 'video/mp4',
      assetType: 'videos',
      status: 'processing',
    });
    await scene.resync();
    await scene.mirror.assetIn(id, 'processing');
    const looks = (await requestsFor(id, 'asset')).length;
    while ((await requestsFor(id, 'asset')).length < looks + 2) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'processing', attempts: 0 });
    expect(await requestsFor(id, 'media')).toEqual([]);
    await scene.admin.changeAsset(id, { status: 'ready' });
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ bytes: 5, failedAttempts: [] });
  });

  test('an asset without a file is unavailable, and tried again by the next full sync', async () => {
    const id = await scene.upload({ status: 'unavailable' });
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'unavailable')).toMatchObject({
      reason: { code: 'no_file', text: expect.stringMatching(/no file/) },
      key: null,
    });
    await scene.admin.changeAsset(id, { status: 'ready' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
  });

  test('an asset whose file the library has lost keeps its copy, which is verified as before', async () => {
    const id = await scene.upload({ content: { text: 'the only copy' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.query(`UPDATE assets SET transcript_state = 'pending' WHERE id = '${id}'`);
    await scene.admin.changeAsset(id, { status: 'unavailable' });
    await scene.resync();
    await until('the worker to find no file', async () => (await scene.mirror.asset(id)).reason?.code === 'no_file');
    // A full sync asks again for a transcript that was given up.
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', transcript: 'gave_up' });
    await scene.checked();
    const { key } = await scene.mirror.asset(id);
    await scene.storage.remove(key);
    // Its full sync makes a worker check the asset again, and until that has ended, the asset is not compared.
    await until('a verification that compares the asset', async () => {
      const verification = await scene.mirror.api('POST', '/verify', {});
      await scene.checked();
      const { counts } = await scene.mirror.api('GET', `/verify/${verification.id}`);
      return counts.missing === 1;
    });
    await scene.query(`DELETE FROM assets WHERE id = '${id}'`);
  });

  test('a late job of a mirrored asset replaces nothing: the next sync decides about another file', async () => {
    const id = await scene.upload({ content: { text: 'first' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.admin.changeAsset(id, { content: { text: 'second one' } });
    await scene.query(`UPDATE assets SET queued_at = now(), next_at = now() WHERE id = '${id}'`);
    await scene.mirror.service.context.queues.assets.add('mirror-asset', { assetId: id });
    const { replacements } = scene.mirror.store;
    await until('it to be set aside', async () => (await replacements.since(id)) !== undefined);
    expect((await scene.media(id))?.toString()).toBe('first');
  });

  test('an asset is requested right before its download', async () => {
    const id = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const requests = await scene.admin.requests({ assetId: id });
    expect(requests.map(({ endpoint }) => endpoint).slice(0, 2)).toEqual(['asset', 'media']);
    expect(Number(requests[1]!.at) - Number(requests[0]!.at)).toBeLessThan(20_000);
  });

  test('a download follows redirects with the Referer and without Authorization on each hop', async () => {
    const id = await scene.upload({ content: { seed: 'redirected', size: 300_000 } });
    await scene.admin.addFault({ endpoint: 'media', assetId: id, redirect: 3 });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await scene.media(id)).toEqual(bytesOf('redirected', 0, 300_000));
    const hops = await requestsFor(id, 'media');
    expect(hops.length).toBeGreaterThanOrEqual(1);
    for (const hop of hops) expect(hop).toMatchObject({ referer: scene.library.appUrl, hasAuthorization: false });
  });

  test('a link that expires during a download is renewed, and the file continues at the same byte', async () => {
    const size = 2_000_000;
    const id = await scene.upload({ content: { seed: 'expiring', size } });
    await scene.admin.setFaults(
      { endpoint: 'media', assetId: id, times: 1, cutAfter: 700_000 },
      { endpoint: 'media', assetId: id, skip: 1, times: 1, expireLinks: true },
    );
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(await scene.media(id)).toEqual(bytesOf('expiring', 0, size));
    const asked = await requestsFor(id, 'media');
    expect(asked.map(({ status }) => status)).toEqual([200, 403, 206]);
    expect(asked[2]!.range).toMatch(/^bytes=\d+-$/);
    expect(asked[2]!.range).not.toBe('bytes=0-');
    expect(await requestsFor(id, 'asset')).toHaveLength(2);
  });

  test('an asset whose details break the schema fails with the name of the field, and others are mirrored', async () => {
    const bad = await scene.upload({ name: 'bad', overrideDetail: { asset: { download: { url: 7 } } } as never });
    const good = await scene.upload({ name: 'good' });
    await scene.resync();
    expect((await scene.mirror.assetIn(bad, 'failed')).reason.text).toMatch(/asset\.download\.url/);
    await scene.mirror.assetIn(good, 'mirrored');
  });

  test('the record has unknown fields and types as received, but no links', async () => {
    const id = await scene.upload({
      override: {
        assetType: 'holograms',
        rights: { until: 2031 },
        previewUrl: 'https://cdn.example.com/p?sig=secret',
        size: null,
      },
    });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const { asset } = await scene.record(id);
    expect(asset).toMatchObject({ assetType: 'holograms', rights: { until: 2031 } });
    expect(JSON.stringify(asset)).not.toMatch(/https?:|secret/);
  });

  test('an asset whose name is not text is mirrored, and its record has the name as received', async () => {
    const id = await scene.upload({ override: { name: 5, thumbnailUrl: 7 } });
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ name: null, failedAttempts: [] });
    const record = await scene.record(id);
    expect(record).toMatchObject({ asset: { name: 5 }, thumbnail: null });
    expect(record.asset).not.toHaveProperty('thumbnailUrl');
  });

  test('an asset with an unknown status is mirrored if it has a file', async () => {
    const ids = [await scene.upload({ override: { status: 'archived' } })];
    ids.push(await scene.upload({ override: { status: 'a\0\ud800' } }));
    await scene.resync();
    for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
  });

  test('429 with Retry-After makes the connection wait and spends no attempt', { tags: 'slow' }, async () => {
    const id = await scene.upload();
    await scene.admin.addFault({ endpoint: 'asset', assetId: id, times: 1, status: 429, retryAfter: 2 });
    const started = Date.now();
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(Date.now() - started).toBeGreaterThan(2000);
  });

  test('refusals of fresh tokens make the connection wait, and spend neither attempts nor more tokens', async () => {
    const id = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const other = await scene.upload();
    await scene.admin.addFault({ endpoint: 'asset', assetId: other, times: 2, status: 401 });
    // The first is the run's own.
    await scene.admin.addFault({ endpoint: 'me', skip: 1, times: 1, status: 401 });
    await scene.admin.clearRequests();
    await scene.resync();
    const delayedUntil = await until('the connection to wait', async () => {
      const { adaptiveLimit } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
      return adaptiveLimit.delayedUntil;
    });
    expect(Date.parse(delayedUntil)).toBeGreaterThan(Date.now() + 15_000);
    // The wait of the asset is written after that of the connection.
    await until('the asset to wait', async () => (await scene.mirror.asset(other)).reason !== null);
    await scene.ground.endWaits();
    expect(await scene.mirror.assetIn(other, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(await scene.admin.requests({ endpoint: 'token' as never })).toHaveLength(1);
  });

  test('an asset that is refused with a valid token holds up no other asset', { tags: 'slow' }, async () => {
    const refused = await scene.upload();
    await scene.admin.addFault({ endpoint: 'asset', assetId: refused, status: 401 });
    const others = await Promise.all(Array.from({ length: 8 }, () => scene.upload()));
    await scene.resync();
    for (const id of others) expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    const { adaptiveLimit } = await scene.mirror.api('GET', `/connections/${scene.connectionId}`);
    expect(adaptiveLimit.delayedUntil).toBeNull();
    await until('its reason', async () => (await scene.mirror.asset(refused)).reason !== null);
    expect((await scene.mirror.asset(refused)).reason.text).toMatch(/^read asset .*: the library answered 401$/);
    await scene.admin.removeAsset(refused);
    await scene.admin.clearFaults();
    await scene.resync({ mode: 'full' });
    // No attempt may refresh a token in the next test.
    await scene.mirror.quiet();
  });

  test('an access token that stops working is refreshed once, however many assets are in transfer', async () => {
    const ids = await Promise.all(Array.from({ length: 8 }, () => scene.upload()));
    await scene.admin.clearRequests();
    await scene.admin.expireTokens();
    await scene.resync();
    for (const id of ids) expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(await scene.admin.requests({ endpoint: 'token' as never })).toHaveLength(1);
  });

  test('a resync of a named asset reads its object, and fetches it again if a byte differs', {
    tags: 'slow',
  }, async () => {
    const id = await scene.upload({ content: { text: 'the right bytes' } });
    await scene.resync();
    const { key, mirroredAt } = await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    const path = `${scene.ground.environment.STORAGE_URL!.slice('file://'.length)}/${key}`;
    const look = async () => {
      await scene.admin.clearRequests();
      await scene.resync({ mode: 'incremental', assetIds: [id] });
      await until('the look', async () => (await requestsFor(id, 'asset')).length > 0);
      await scene.mirror.quiet();
      expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', mirroredAt });
      expect((await scene.media(id))!.toString()).toBe('the right bytes');
      return (await requestsFor(id, 'media')).length;
    };
    expect(await look()).toBe(0);
    for (const damaged of ['the wrong bytes', 'the right byte', '']) {
      await writeFile(path, damaged);
      expect(await look()).toBe(1);
    }
    await rm(path);
    expect(await look()).toBe(1);
  });

  test('a replaced file is fetched again; a changed name or tag only gets a new record', { tags: 'slow' }, async () => {
    const id = await scene.upload({ content: { text: 'first' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.admin.clearRequests();
    await scene.admin.changeAsset(id, { tags: ['autumn'] });
    await scene.resync();
    await expect.poll(async () => (await scene.record(id)).asset.tags).toEqual(['autumn']);
    expect(await requestsFor(id, 'media')).toEqual([]);

    await scene.admin.changeAsset(id, { content: { text: 'the second version' } });
    await scene.resync();
    await expect.poll(async () => (await scene.media(id))?.toString()).toBe('the second version');
    await scene.mirror.quiet();
    expect((await scene.record(id)).media.bytes).toBe(18);
  });
});

test('a video that never becomes ready fails at its deadline with the reason', { tags: 'slow' }, async () => {
  const scene = await newScene({ environment: { PROCESSING_GIVE_UP: '1s', PROCESSING_POLL: '100ms' } });
  try {
    const id = await scene.upload({ mimeType: 'video/mp4', assetType: 'videos', status: 'processing' });
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'failed')).toMatchObject({
      reason: { code: 'still_processing', text: expect.stringMatching(/still processing/) },
      attempts: 1,
    });
  } finally {
    await scene.close();
  }
});
