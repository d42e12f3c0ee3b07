import type pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { bytesOf } from '../../src/library/index.ts';
import { scrape } from '../metrics/scrape.ts';
import type { Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { day, newScrubbing, type Scrubbing } from './scrubbing.ts';

describe('the scrub', () => {
  let made: Scrubbing | undefined;
  let scene: Scene;
  let database: pg.Client;
  let ids: string[];
  let scrubber: Scrubbing['scrubber'];
  let age: Scrubbing['age'];
  let row: Scrubbing['row'];
  let isFresh: Scrubbing['isFresh'];
  let fresh: Scrubbing['fresh'];
  beforeAll(async () => {
    made = await newScrubbing();
    ({ scene, database, ids, scrubber, age, row, isFresh, fresh } = made);
  });
  afterEach(() => made?.reset());
  afterAll(() => made?.close());
  const stop = new AbortController().signal;

  test('the longest unverified asset is read first, and the next one only when it is due', async () => {
    for (const [i, id] of ids.entries()) await age(id, 10 + (i === 2 ? 5 : i));
    await scrubber().round(stop);
    expect(await fresh()).toEqual([2]);
    // After a restart, too.
    await scrubber().round(stop);
    expect(await fresh()).toEqual([2]);
    await database.query(`UPDATE scrub SET read_at = now() - interval '30 days'`);
    await scrubber().round(stop);
    expect(await fresh()).toEqual([2, 3]);
  });

  test('assets that are due within a second of each other are read in one round', async () => {
    for (const [days, id] of ids.entries()) await age(id, 80 + days);
    await scrubber({ cycle: 4000 }).round(stop);
    expect(await fresh()).toEqual([0, 1, 2, 3]);
  });

  test('one process at a time runs the scrub, and another continues when it has died', async () => {
    for (const id of ids) await age(id, 10);
    const { scrub } = scene.mirror.store;
    expect(await scrub.take('another', 60_000)).toBeDefined();
    await scrubber().round(stop);
    expect(await fresh()).toEqual([]);
    await database.query(`UPDATE scrub SET until = now() - interval '1 second'`);
    await scrubber().round(stop);
    expect(await fresh()).toHaveLength(1);
    expect(await scrub.assetRead('another')).toBeUndefined();
  });

  test('a problem with the whole bucket ends the round, and the next one comes later', async () => {
    const { storage } = scene.mirror.service.context;
    const check = () => Promise.reject(new Error('this is another bucket'));
    const broken = scrubber({ storage: { ...storage, get: async () => undefined, check } });
    await age(ids[0]!, 80);
    await expect(broken.round(stop)).rejects.toThrow('another bucket');
    expect(await broken.round(stop)).toBe('not due');
  });

  test('the scrub waits for transfers, unless it would be late', { tags: 'slow' }, async () => {
    const id = await scene.upload({ content: { seed: 'slow', size: 300_000 } });
    await scene.admin.addFault({ endpoint: 'media', assetId: id, stallAfter: 100_000 });
    await scene.resync({ mode: 'incremental', since: '2024-01-01T00:00:00Z' });
    await scene.mirror.assetIn(id, 'transferring');
    await age(ids[0]!, 89);
    await scrubber().round(stop);
    expect(await fresh()).not.toContain(0);
    // It becomes due within the round.
    await database.query('UPDATE scrub SET read_at = now(), rate = $1', [2 ** 20 / 200]);
    await scrubber().round(stop);
    expect(await fresh()).not.toContain(0);
    await database.query('UPDATE scrub SET read_at = NULL');
    await age(ids[0]!, 91);
    await scrubber().round(stop);
    expect(await fresh()).toContain(0);
    await scene.admin.clearFaults();
    await scene.mirror.assetIn(id, 'mirrored');
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test('the scrub reads a file no faster than SCRUB_BANDWIDTH', { tags: 'slow' }, async () => {
    const size = 1_000_000;
    const id = await scene.upload({ content: { seed: 'large', size } });
    await scene.resync({ mode: 'incremental', since: '2024-01-01T00:00:00Z' });
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    expect(await scene.media(id)).toEqual(bytesOf('large', 0, size));
    await age(id, 80);
    const before = (await scrape(scene.ground.publicUrl)).value('asset_mirror_scrubbed_bytes_total')!;
    const started = performance.now();
    await scrubber({ bandwidth: size }).round(stop);
    expect(performance.now() - started).toBeGreaterThan(700);
    expect(await isFresh(id)).toBe(true);
    const { value } = await until('the records to be read again', async () => {
      const found = await scrape(scene.ground.publicUrl);
      return found.value('asset_mirror_oldest_verification_seconds')! < 3600 && found;
    });
    expect(value('asset_mirror_scrubbed_bytes_total')! - before).toBeGreaterThan(size);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test('the answer about the scrub has its requests and bytes per day', async () => {
    const { scrub } = scene.mirror.service.context.operations;
    const { assets, ...answer } = await scrub();
    expect(assets).toBeGreaterThanOrEqual(ids.length);
    expect(answer).toMatchObject({ cycle: null, onTime: null, perDay: null, objects: 2 * assets });
  });

  test('in a running service, each file is verified again and again within the cycle', { tags: 'slow' }, async () => {
    await scene.restart({ SCRUB_CYCLE: '2s' });
    const since = new Date();
    const isAfter = async (at: Date) => (await Promise.all(ids.map(row))).every(({ verifiedAt }) => verifiedAt! > at);
    await until('each file to be verified', () => isAfter(since));
    const again = new Date();
    await until('each file to be verified again', () => isAfter(again));
    const status = await scene.mirror.api('GET', '/scrub');
    expect(status).toMatchObject({ cycle: 2000, perDay: { requests: (2 * status.objects * day) / 2000 } });
    expect((await scrape(scene.ground.publicUrl)).value('asset_mirror_scrub_cycle_seconds')).toBe(2);
  });
});
