// @module-tag slow
import { createHash } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { chunksOf } from '../../src/library/index.ts';
import { richest } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const MiB = 2 ** 20;

function shaOf(seed: string, bytes: number): string {
  const hash = createHash('sha256');
  for (const chunk of chunksOf(seed, 0, bytes)) hash.update(chunk);
  return hash.digest('hex');
}

describe.each([richest()])('a slow file ($name)', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene({
      redis: kind.redis,
      s3: kind.s3,
      environment: { TRANSFER_MIN_RATE: '4KiB/s', TRANSFER_MIN_RATE_WINDOW: '1s' },
    });
  });
  afterEach(() => scene.admin.clearFaults());
  afterAll(() => scene?.close());

  const ranges = async (assetId: string) =>
    (await scene.admin.requests({ assetId, endpoint: 'media' })).map(({ range, status }) => `${status} ${range}`);
  const shaAt = async (id: string) => {
    const hash = createHash('sha256');
    const { key } = await scene.mirror.asset(id);
    for await (const chunk of (await scene.storage.get(key))!) hash.update(chunk);
    return hash.digest('hex');
  };

  test('slow files free their slots for others, fail after the usual attempts, and slow nothing else down', async () => {
    const slow: string[] = [];
    for (let i = 0; i < 8; i++) {
      const id = await scene.upload({ content: { seed: `slow ${i}`, size: MiB }, uploadDate: Date.UTC(2024, 1, 29) });
      await scene.admin.addFault({ endpoint: 'media', assetId: id, bytesPerSecond: 100 });
      slow.push(id);
    }
    const others: string[] = [];
    for (let i = 0; i < 12; i++) others.push(await scene.upload({ uploadDate: Date.UTC(2024, 0, 1) }));
    await scene.resync();
    for (const id of others) await scene.mirror.assetIn(id, 'mirrored');
    await until('all attempts', async () => {
      await scene.ground.endWaits();
      return (await scene.mirror.api('GET', '/status')).assets.byState.failed === slow.length;
    });
    for (const id of slow) {
      const { reason } = await scene.mirror.assetIn(id, 'failed');
      expect(reason.text).toMatch(/at \d+ B\/s for .*TRANSFER_MIN_RATE \(4\.0 KiB\/s\)/);
      expect(await scene.keys(id)).toEqual([]);
    }
    // On a busy machine, the API itself may answer slowly.
    const slowed = scene.mirror.lines.filter(
      ({ event, reason }) =>
        ['connection.slowed_down', 'connection.delayed'].includes(event as string) &&
        reason !== 'its answers take longer than before',
    );
    expect(slowed).toEqual([]);
    expect(await scene.ground.leftovers()).toEqual([]);
  });

  test('a slow file in parts continues with the parts that are missing', async () => {
    // Long enough for the store to answer for a part before the next one is given up.
    await scene.restart({ TRANSFER_MIN_RATE_WINDOW: '15s' });
    const size = 36 * MiB;
    const id = await scene.upload({ content: { seed: 'parts', size } });
    // The first byte and two parts arrive fast, the third part does not.
    await scene.admin.addFault({ endpoint: 'media', assetId: id, skip: 3, times: 1, bytesPerSecond: 100 });
    await scene.resync();
    // A part that was stored is progress: no attempt was spent.
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    expect(await shaAt(id)).toBe(shaOf('parts', size));
    expect(await ranges(id)).toHaveLength(1 + 3 + 1);
  });

  test('a slow file in one stream is retried in small parts, and continues with those that are missing', async () => {
    const size = 12 * MiB;
    const id = await scene.upload({ content: { seed: 'small', size } });
    // The whole file, and then the last of its parts.
    await scene.admin.addFault({ endpoint: 'media', assetId: id, times: 1, bytesPerSecond: 100 });
    await scene.admin.addFault({ endpoint: 'media', assetId: id, skip: 4, times: 1, bytesPerSecond: 100 });
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({
      failedAttempts: [expect.stringContaining('attempt failed')],
    });
    expect(await shaAt(id)).toBe(shaOf('small', size));
    const asked = await ranges(id);
    expect(asked.slice(0, 2)).toEqual(['200 null', '206 bytes=0-0']);
    expect(asked).toHaveLength(2 + 3 + 1);
    const store = scene.mirror.service.context.store;
    await until('nothing to be left', async () => (await scene.ground.leftovers()).length === 0);
    expect(await scene.query('SELECT id FROM assets WHERE upload IS NOT NULL')).toEqual([]);
    expect(await store.assets.parts(id)).toEqual([]);
  });
});
