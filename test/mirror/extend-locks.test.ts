import { HeadObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { extendLocks } from '../../src/mirror/extend-locks.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { locking, startLocking } from '../storage/locking.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';

const hour = 3_600_000;

describe.each(locking.filter(({ there }) => there))(
  'a mirror with S3_OBJECT_LOCK on $name',
  { timeout: 120_000 },
  ({ start }) => {
    let place: Awaited<ReturnType<typeof startLocking>>;
    let bucket: string;
    let scene: Scene;
    beforeAll(async () => {
      place = await startLocking(start);
      bucket = await place.newBucket();
      const { endpoint, region } = place.server;
      const environment = {
        STORAGE_URL: `s3://${bucket}`,
        S3_ENDPOINT: endpoint,
        S3_REGION: region,
        S3_FORCE_PATH_STYLE: 'true',
        S3_OBJECT_LOCK: 'governance:1h',
      };
      scene = await newScene({ environment });
    });
    afterAll(async () => {
      await scene?.close();
      await place?.stop();
    });

    const retention = async (key: string) =>
      (await place.raw.send(new HeadObjectCommand({ Bucket: bucket, Key: key }))).ObjectLockRetainUntilDate;
    function pass(storage: Storage = scene.mirror.service.context.storage) {
      const { store, metrics, log } = scene.mirror.service.context;
      return extendLocks({ store, storage, metrics, log, signal: new AbortController().signal });
    }
    const lockOf = async (id: string) => (await scene.mirror.store.assets.get(id))!.retainedUntil;
    const age = (id: string, to: Date) =>
      scene.mirror.store.assets
        .get(id)
        .then((asset) => scene.mirror.store.retention.saveLocks([{ id, lease: asset!.lease, until: to }]));

    test('media is locked, replaced while it is locked, and its lock is extended while it is in the library', async () => {
      const id = await scene.film();
      const large = await scene.upload({ name: 'large.bin', content: { seed: 'large', size: 40 * 2 ** 20 } });
      await scene.resync();
      await scene.mirror.quiet();
      const { key } = await scene.mirror.asset(id);
      const { key: largeKey } = await scene.mirror.asset(large);
      expect((await retention(key))!.getTime()).toBeGreaterThan(Date.now() + 0.9 * hour);
      expect((await retention(largeKey))!.getTime()).toBeGreaterThan(Date.now() + 0.9 * hour);

      // Nothing is known yet; then nothing is due.
      expect(await pass()).toBe(2);
      expect((await lockOf(id))!.getTime()).toBeGreaterThan(Date.now() + 0.9 * hour);
      expect(await pass()).toBe(0);

      // It ends soon, according to the database: the store is asked.
      await age(id, new Date(Date.now() + hour / 4));
      expect(await pass()).toBe(1);
      expect((await lockOf(id))!.getTime()).toBeGreaterThan(Date.now() + 0.9 * hour);

      await scene.admin.changeAsset(id, { content: { text: 'another film' } });
      await scene.resync();
      await scene.mirror.quiet();
      await scene.checked();
      expect(await lockOf(id)).toBeNull();
      const { storage } = scene.mirror.service.context;
      expect((await contentOf(storage, (await scene.mirror.asset(id)).key))?.toString()).toBe('another film');
      const { failed } = (await scene.mirror.api('GET', '/status')).assets.byState;
      expect(failed).toBe(0);
      expect(await pass()).toBe(1);
    });

    test('one object that cannot be extended does not stop the others, and is counted', async () => {
      const results = async () => {
        const { values } = await scene.mirror.service.context.metrics.lockExtensions.get();
        return Object.fromEntries(values.map(({ labels, value }) => [labels.result, value]));
      };
      const before = await results();
      const ids = [await scene.upload({ name: 'one' }), await scene.upload({ name: 'two' })].sort();
      await scene.resync();
      await scene.mirror.quiet();
      const { storage } = scene.mirror.service.context;
      const broken = (await scene.mirror.asset(ids[0]!)).key;
      const failing: Storage = {
        ...storage,
        lock: {
          ms: storage.lock!.ms,
          async extend(key) {
            if (key === broken) throw new Error('refused');
            return storage.lock!.extend(key);
          },
        },
      };
      expect(await pass(failing)).toBe(1);
      expect(await results()).toEqual({ extended: before.extended! + 1, failed: before.failed! + 1 });
      expect([await lockOf(ids[0]!), await lockOf(ids[1]!)]).toEqual([null, expect.any(Date)]);
      expect(await pass()).toBe(1);
    });

    test('the lock of an asset that is gone is not extended', async () => {
      const id = await scene.upload({ name: 'gone' });
      await scene.resync();
      await scene.mirror.quiet();
      await pass();
      await age(id, new Date(Date.now() + 60_000));
      await scene.admin.removeAsset(id);
      await scene.resync({ mode: 'full', acceptGone: true });
      await scene.mirror.assetIn(id, 'gone');
      expect(await pass()).toBe(0);
    });
  },
);
