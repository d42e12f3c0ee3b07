// @module-tag slow
import { GetObjectRetentionCommand, HeadObjectCommand, PutObjectRetentionCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { extendLocks } from '../../src/mirror/extend-locks.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { locking, newLockedScene } from '../storage/locking.ts';
import { contentOf } from '../support/mirror.ts';
import type { Scene } from '../support/scene.ts';

const hour = 3_600_000;

describe.each(locking.filter(({ there }) => there))('a mirror with S3_OBJECT_LOCK on $name', ({ start }) => {
  let at: Awaited<ReturnType<typeof newLockedScene>>;
  let scene: Scene;
  beforeAll(async () => {
    at = await newLockedScene(start, 'governance:1h');
    ({ scene } = at);
  });
  afterAll(() => at?.close());

  const retention = async (Key: string) =>
    (await at.place.raw.send(new HeadObjectCommand({ Bucket: at.bucket, Key }))).ObjectLockRetainUntilDate;
  function pass(storage: Storage = scene.mirror.service.context.storage, keepVersions = 90 * 24 * hour) {
    const { store, metrics, log } = scene.mirror.service.context;
    return extendLocks({
      store,
      storage,
      metrics,
      log,
      config: { keepVersions },
      signal: new AbortController().signal,
    });
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
    // The new file, and the version that it replaced.
    expect(await pass()).toBe(2);
    expect(await pass()).toBe(0);
  });

  test('after a move to another bucket, everything is locked again, because a copy has no locks', async () => {
    const { storage } = scene.mirror.service.context;
    const moved: Storage = { ...storage, lock: { ...storage.lock!, place: 's3://another' } };
    expect(await pass(moved)).toBe(3);
    expect(await pass(moved)).toBe(0);
    expect(await pass()).toBe(3);
  });

  test('a kept version stays locked until it expires, and no longer', async () => {
    const id = await scene.upload({ name: 'kept' });
    await scene.resync();
    await scene.mirror.quiet();
    await scene.admin.changeAsset(id, { content: { text: 'another one' } });
    await scene.resync();
    await scene.mirror.quiet();
    const { store } = scene.mirror;
    const [version] = await store.versions.ofAsset(id);
    const { at: key, versionId } = version!.files[0]!;
    const lasts = async () => {
      const of = { Bucket: at.bucket, Key: key, VersionId: versionId };
      const { Retention } = await at.place.raw.send(new GetObjectRetentionCommand(of));
      return Retention!.RetainUntilDate!.getTime() - Date.now();
    };
    /** As if most of the lock were over. */
    async function age(): Promise<void> {
      const RetainUntilDate = new Date(Date.now() + hour / 12);
      const Retention = { Mode: 'GOVERNANCE', RetainUntilDate } as const;
      const of = { Bucket: at.bucket, Key: key, VersionId: versionId, BypassGovernanceRetention: true };
      await at.place.raw.send(new PutObjectRetentionCommand({ ...of, Retention }));
      await store.retention.saveVersionLocks([{ id, replacedAt: version!.replacedAt, until: RetainUntilDate }]);
    }
    await pass();
    await age();
    expect(await pass()).toBe(1);
    expect(await lasts()).toBeGreaterThan(0.9 * hour);
    expect(await pass()).toBe(0);

    await age();
    const keepMs = Date.now() - version!.replacedAt.getTime() + hour / 4;
    expect(await pass(undefined, keepMs)).toBe(1);
    expect(Math.abs((await lasts()) - hour / 4)).toBeLessThan(60_000);
    expect(await pass(undefined, keepMs)).toBe(0);
    expect(await pass(undefined, Number.POSITIVE_INFINITY)).toBe(1);
    expect(await lasts()).toBeGreaterThan(0.9 * hour);

    // Not of an asset that is gone.
    await age();
    await scene.admin.removeAsset(id);
    await scene.resync({ mode: 'full', acceptGone: true });
    await scene.mirror.assetIn(id, 'gone');
    expect(await pass()).toBe(0);
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
        ...storage.lock!,
        async extend(key, options) {
          if (key === broken) throw new Error('refused');
          return storage.lock!.extend(key, options);
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
});
