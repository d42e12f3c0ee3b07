// @module-tag slow
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { eraseAssets } from '../../../src/mirror/removal/erase.ts';
import { purgeAsset } from '../../../src/mirror/removal/purge-asset.ts';
import { removeGone } from '../../../src/mirror/removal/remove-gone.ts';
import { hashOf } from '../../../src/store/removals/tombstones.ts';
import { died, mortal } from '../../support/mortal.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const s3 = inject('s3');
const stores = [
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name}`, s3, versions: false }] : []),
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
];
const signal = new AbortController().signal;
const day = 86_400_000;

/** Each test has an asset with a thumbnail and a superseded file for every step at which the process may die. */
describe.each(stores)('a removal from $name whose process dies', { timeout: 240_000 }, ({ s3, versions }) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  let at: Awaited<ReturnType<Stage['company']>>;
  beforeAll(async () => {
    stage = await newStage({ s3, versions });
    worker = workerOf(stage);
    at = await stage.company();
    // The tests replace and remove more than the usual limit, above which a company is held.
    await stage.mirror.api('PATCH', `/connections/${at.connectionId}`, { holdReplaced: '100%,0' });
    await newAsset();
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });

  async function newAsset(): Promise<string> {
    const picture = { filename: 'a.jpg', mimeType: 'image/jpeg', assetType: 'photography', thumbnail: true };
    const [id] = await stage.upload(at.companyId, 1, { ...picture, content: { text: 'first' } });
    for (const text of ['first', 'second one']) {
      await stage.admin.changeAsset(id!, { content: { text } });
      await stage.sync(at.connectionId, 'full');
      await worker.complete(id!);
    }
    return id!;
  }

  /** What the bucket has of an asset, with all versions. */
  async function storedOf(id: string) {
    const asset = { ...(await stage.store.assets.get(id))!, versions: await stage.store.versions.ofAsset(id) };
    return purgeAsset(stage.ground.storage, asset, { signal, isShared: async () => false, dryRun: true });
  }
  /** The objects of this asset, and those of all others, each as key and ETag. */
  async function objects(id: string) {
    const all = (await Array.fromAsync(stage.ground.storage.list(''))).map(({ key, etag }) => `${key} ${etag}`);
    const isOf = (object: string) => object.includes(`/${id}/`) || object.includes(hashOf(id));
    return { own: all.filter(isOf), others: all.filter((object) => !isOf(object)) };
  }
  const versionsOf = async (id: string) =>
    (await Array.fromAsync(stage.ground.storage.purge(`${at.companyId}/_/${id}/`, { dryRun: true }))).length;

  /** Dies before each step in turn, each time with another asset, and continues. Returns the number of steps. */
  async function atEachStep(
    begin: (id: string) => Promise<void>,
    pass: (deps: Parameters<typeof eraseAssets>[0]) => Promise<number>,
    check: (id: string, before: Awaited<ReturnType<typeof storedOf>>) => Promise<void>,
  ): Promise<number> {
    const { store, storage, log, config } = stage.mirror.service.context;
    const deps = { store, storage, log, keyTemplate: config.storage.keyTemplate, leaseMs: 60_000, signal };
    for (let steps = 1; ; steps++) {
      const id = await newAsset();
      const before = await storedOf(id);
      expect(before.objects).toBeGreaterThanOrEqual(6);
      const { others } = await objects(id);
      await begin(id);
      const life = new AbortController();
      const process = mortal(steps, life);
      const dying = { ...deps, store: process(store), storage: process(storage), signal: life.signal };
      const hasDied = await died(pass(dying));
      // The lease of the process that died.
      await stage.query('UPDATE assets SET lease_until = NULL WHERE id = $1', [id]);
      expect({ steps, removed: await pass(deps) }).toEqual({ steps, removed: hasDied ? expect.any(Number) : 0 });
      expect(await stage.store.assets.get(id)).toBeUndefined();
      expect(await stage.store.versions.ofAsset(id)).toEqual([]);
      expect(await versionsOf(id)).toBe(0);
      expect((await objects(id)).others).toEqual(others);
      await check(id, before);
      if (!hasDied) return steps;
    }
  }

  test('an erasure that dies at any step is continued: it removes all of the asset, and certifies that', async () => {
    let erasureId = '';
    const steps = await atEachStep(
      async (id) => {
        const asked = await stage.mirror.api('POST', '/erasures', { assetIds: [id], reason: 'requested' });
        erasureId = asked.id;
      },
      eraseAssets,
      async (id, { objects: count, bytes }) => {
        const certificate = await stage.mirror.api('GET', `/erasures/${erasureId}/certificate`);
        expect(certificate).toMatchObject({
          ...{ assets: { erased: 1, held: 0 }, objects: count, bytes, left: 0, remaining: [], notErased: [] },
          erased: [{ sha256: hashOf(id), objects: count, bytes }],
        });
        expect((await objects(id)).own).toEqual([expect.stringContaining(`_mirror/tombstones/${hashOf(id)}.json `)]);
      },
    );
    // Waiting, lease, tombstone, count, each object, end: each of them was the last step of a process.
    expect(steps).toBeGreaterThan(16);
  });

  test('a removal after GONE_RETENTION that dies at any step is continued: it removes all of the asset', async () => {
    const steps = await atEachStep(
      async (id) => {
        await stage.admin.removeAsset(id);
        await stage.sync(at.connectionId, 'full', { acceptGone: true });
        await stage.query(`UPDATE assets SET gone_at = now() - interval '31 days' WHERE id = $1`, [id]);
      },
      (deps) => removeGone(deps, 30 * day),
      async (id) => {
        expect((await objects(id)).own).toEqual([]);
        expect(await stage.events({ kind: 'asset.removed', assetId: id })).toHaveLength(1);
      },
    );
    expect(steps).toBeGreaterThan(10);
  });
});
