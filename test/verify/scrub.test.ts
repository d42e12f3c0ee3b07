import { crc32 } from 'node:zlib';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../src/floor/errors.ts';
import { bytesOf } from '../../src/library/index.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { Scrubber } from '../../src/verify/scrub.ts';
import { scrape } from '../metrics/scrape.ts';
import { contentHash } from '../support/content-hash.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const day = 86_400_000;

describe('the scrub', () => {
  let scene: Scene;
  let database: pg.Client;
  const ids: string[] = [];
  beforeAll(async () => {
    scene = await newScene();
    database = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL! });
    await database.connect();
    for (let i = 0; i < 4; i++) ids.push(await scene.upload({ content: { text: `file ${i}` } }));
    await scene.resync();
    for (const id of ids) await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
  });
  afterEach(async () => {
    await database.query('DELETE FROM scrub');
    await database.query(
      `UPDATE assets SET verified_at = now(), unverifiable_at = NULL WHERE state IN ('mirrored', 'gone')`,
    );
  });
  afterAll(async () => {
    await database?.end();
    await scene?.close();
  });

  const stop = new AbortController().signal;
  function scrubber(options: { cycle?: number; bandwidth?: number; storage?: Storage } = {}) {
    const { context } = scene.mirror.service;
    const breaker = { openReason: undefined };
    const onRead = (bytes: number) => context.metrics.scrubbedBytes.inc(bytes);
    return new Scrubber({
      onRead,
      ...context,
      breaker,
      instance: 'test',
      cycle: 90 * day,
      bandwidth: 10 * 2 ** 20,
      ...options,
    });
  }
  const age = (id: string, days: number) =>
    database.query(`UPDATE assets SET verified_at = now() - $2 * interval '1 day' WHERE id = $1`, [id, days]);
  const row = async (id: string) => (await scene.mirror.store.assets.get(id))!;
  const isFresh = async (id: string) => Date.now() - (await row(id)).verifiedAt!.getTime() < 3_600_000;
  const fresh = async () => (await Promise.all(ids.map(isFresh))).flatMap((is, i) => (is ? [i] : []));
  /** Other bytes of the same length. */
  const damage = async (key: string) => {
    const content = (await contentOf(scene.storage, key))!;
    await scene.storage.put(key, Buffer.alloc(content.length, 'x'));
  };

  /** An asset with a superseded file; `key` has the current one. */
  async function replacedFile() {
    const id = await scene.upload({ content: { text: 'good' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const { key } = await scene.mirror.asset(id);
    await scene.admin.changeAsset(id, { content: { text: 'another one' } });
    await scene.resync();
    await until('the other file', async () => (await contentOf(scene.storage, key))?.toString() === 'another one');
    await scene.checked();
    await scene.mirror.quiet();
    return { id, key };
  }

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

  test('a file without a content hash gets it from the scrub, and then its content hash decides', async () => {
    const { media } = await row(ids[0]!);
    const { key, checksums } = media!;
    await database.query(
      `UPDATE assets SET media = media #- '{checksums,sha256}',
      sidecar_files = sidecar_files #- ARRAY[record_key, 'sha256'] WHERE id = $1`,
      [ids[0]],
    );
    await age(ids[0]!, 80);
    await scrubber({ cycle: 4000 }).round(stop);
    const { media: read, recordKey, sidecarFiles } = await row(ids[0]!);
    expect(read!.checksums).toEqual(checksums);
    expect(sidecarFiles[recordKey!]!.sha256).toBe(contentHash((await contentOf(scene.storage, recordKey!))!));

    const content = (await contentOf(scene.storage, key))!;
    const other = Buffer.alloc(content.length, 'y');
    await scene.storage.put(key, other);
    // As if the other bytes had the same CRC-32.
    await database.query(
      `UPDATE assets SET media = jsonb_set(media, '{checksums,crc32}', to_jsonb($2::text)) WHERE id = $1`,
      [ids[0], crc32(other).toString(16).padStart(8, '0')],
    );
    await database.query('DELETE FROM scrub');
    await age(ids[0]!, 80);
    await scrubber({ cycle: 4000 }).round(stop);
    await until('the repair', async () => (await contentOf(scene.storage, key))?.equals(content) === true);
    await scene.mirror.assetIn(ids[0]!, 'mirrored');
    expect((await row(ids[0]!)).media!.checksums).toEqual(checksums);
    await database.query(`DELETE FROM events WHERE kind = 'asset.damaged'`);
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

  test('a damaged file and a missing record are repaired, and an event reports it', async () => {
    const id = ids[1]!;
    const { key } = await scene.mirror.asset(id);
    await damage(key);
    await scene.storage.remove(`${key}.asset.json`);
    await age(id, 50);
    await scrubber().round(stop);
    await until('the file', async () => (await contentOf(scene.storage, key))?.toString() === 'file 1');
    await until('the record', async () => (await scene.storage.head(`${key}.asset.json`)) !== undefined);
    await scene.mirror.quiet();
    const { rows } = await database.query(`SELECT * FROM events WHERE kind = 'asset.damaged'`);
    expect(rows).toMatchObject([{ asset_id: id, data: { repaired: true } }]);
    expect(rows[0].data.objects.map((object: { key: string }) => object.key).sort()).toEqual([
      key,
      `${key}.asset.json`,
    ]);
  });

  test('a superseded file is read back with its asset, and an event reports its damage', async () => {
    const { id, key } = await replacedFile();
    const { versions, scrub } = scene.mirror.store;
    const [version] = await versions.ofAsset(id);
    const { at } = version!.files[0]!;
    await damage(at);
    await age(id, 50);
    expect(await scrub.next([])).toMatchObject({ id, weight: 11 + version!.bytes + 2 ** 20 });
    await scrubber().round(stop);
    expect(await isFresh(id)).toBe(true);
    const { rows } = await database.query(`SELECT data FROM events WHERE kind = 'asset.damaged' AND asset_id = $1`, [
      id,
    ]);
    const text = expect.stringMatching(/CRC-32 .* was kept: the media of version .*, which cannot be fetched again/);
    expect(rows).toEqual([{ data: { objects: [{ key: at, text }], repaired: false } }]);
    const { examples } = await scene.mirror.store.assurance.findings({ since: new Date(0), connectionId: undefined });
    expect(examples).toContainEqual(expect.objectContaining({ assetId: id, key: at }));
    expect(await contentOf(scene.storage, key)).toEqual(Buffer.from('another one'));
    const before = await scrub.sizes();
    await database.query('DELETE FROM asset_versions WHERE asset_id = $1', [id]);
    const { objects, bytes } = await scrub.sizes();
    // Media and record, and the record of the version.
    expect([before.objects - objects, before.bytes - bytes]).toEqual([3, version!.bytes]);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test('a damaged file whose asset a worker is changing is read again soon, also if it has a superseded file', async () => {
    const { id, key } = await replacedFile();
    await damage(key);
    await database.query(`UPDATE assets SET queued_at = now(), lease_until = now() + interval '1 hour' WHERE id = $1`, [
      id,
    ]);
    await age(id, 50);
    await scrubber().round(stop);
    expect(await row(id)).toMatchObject({ unverifiableAt: null });
    expect(await isFresh(id)).toBe(false);
    await database.query('DELETE FROM asset_versions WHERE asset_id = $1', [id]);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test('a file that can neither be verified nor repaired is not read again before the next cycle', async () => {
    const id = await scene.upload({ content: { text: 'soon gone' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    await scene.mirror.quiet();
    await damage((await scene.mirror.asset(id)).key);
    await database.query(`UPDATE assets SET state = 'gone' WHERE id = $1`, [id]);
    await age(id, 50);
    await age(ids[0]!, 40);
    await scrubber().round(stop);
    expect(await row(id)).toMatchObject({ state: 'gone', unverifiableAt: expect.any(Date) });
    await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
    await scrubber().round(stop);
    expect(await fresh()).toContain(0);
    const { scrub } = await scene.mirror.api('GET', '/status');
    expect(Date.now() - Date.parse(scrub.oldest)).toBeLessThan(3_600_000);
    await database.query('DELETE FROM assets WHERE id = $1', [id]);
  });

  test.each([new Error('the store answered 400'), new StorageUnavailable('the store denies access')])(
    'an object that cannot be read (%s) holds up no other, and its asset stays the oldest',
    async (refusal) => {
      const failing = scrubber();
      const [unreadable, other] = [ids[0]!, ids[3]!];
      const { key } = await scene.mirror.asset(unreadable);
      const { context } = scene.mirror.service;
      const storage = {
        ...context.storage,
        get: async (wanted: string) => {
          if (wanted === key) throw refusal;
          return context.storage.get(wanted);
        },
      };
      const broken = scrubber({ storage });
      await age(unreadable, 80);
      await age(other, 70);
      await broken.round(stop);
      expect(await fresh()).toEqual([1, 2, 3]);
      const { oldest } = await scene.mirror.store.scrub.progress();
      expect(oldest).toEqual((await row(unreadable)).verifiedAt);
      await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
      await failing.round(stop);
      expect(await isFresh(unreadable)).toBe(true);
    },
  );

  test('an asset with a sidecar that cannot be read stays the oldest', async () => {
    const id = ids[0]!;
    const record = `${(await scene.mirror.asset(id)).key}.asset.json`;
    const { context } = scene.mirror.service;
    const storage = {
      ...context.storage,
      get: async (wanted: string) => {
        if (wanted === record) throw new Error('the store answered 500');
        return context.storage.get(wanted);
      },
    };
    await age(id, 80);
    const before = (await row(id)).verifiedAt;
    await scrubber({ storage }).round(stop);
    expect((await row(id)).verifiedAt).toEqual(before);
    await database.query(`UPDATE scrub SET read_at = now() - interval '60 days'`);
    await scrubber().round(stop);
    expect(await isFresh(id)).toBe(true);
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
