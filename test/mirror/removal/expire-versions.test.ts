import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { expireVersions } from '../../../src/mirror/removal/expire-versions.ts';
import { versionKeys } from '../../../src/storage/keys.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import type { AssetVersion } from '../../../src/store/database/schema.ts';
import type { Store } from '../../../src/store/store.ts';
import { rebuild } from '../../../src/verify/rebuild/rebuild.ts';
import { newStore } from '../../store/records.ts';
import { contentOf } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const s3 = inject('s3');
const signal = new AbortController().signal;

describe.each([
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
])('versions in $name', ({ s3, versions }) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  let at: Awaited<ReturnType<Stage['company']>>;
  beforeAll(async () => {
    stage = await newStage({ s3, versions });
    worker = workerOf(stage);
    at = await stage.company();
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });

  const expire = (keepMs: number, storage: Storage = stage.ground.storage, store: Store = stage.store) =>
    expireVersions({ store, storage, log: stage.mirror.service.context.log }, { keepMs, signal });
  const ofAsset = (id: string) => stage.store.versions.ofAsset(id);
  const logged = (event: string) => stage.mirror.lines.filter((line) => line.event === event);

  /** An asset with as many superseded files as texts but one. */
  async function replaced(...texts: string[]): Promise<string> {
    const [id] = await stage.upload(at.companyId, 1, { filename: 'file', content: { text: texts[0]! } });
    for (const text of texts) {
      await stage.admin.changeAsset(id!, { content: { text } });
      await stage.sync(at.connectionId, 'full');
      await worker.complete(id!);
    }
    return id!;
  }
  const objects = async () =>
    (await Array.fromAsync(stage.ground.storage.list('_mirror/versions/'))).map(({ key }) => key);

  /** Makes a version a day older: its row, and its record, whose key has the time. */
  async function dayEarlier({ assetId, replacedAt }: AssetVersion): Promise<void> {
    const { storage } = stage.ground;
    const at = new Date(replacedAt.getTime() - 86_400_000);
    const record = await contentOf(storage, versionKeys.record(assetId, replacedAt));
    await storage.put(versionKeys.record(assetId, at), record!);
    await storage.remove(versionKeys.record(assetId, replacedAt));
    const which = [assetId, replacedAt];
    await stage.query('UPDATE asset_versions SET replaced_at = $3 WHERE asset_id = $1 AND replaced_at = $2', [
      ...which,
      at,
    ]);
  }

  test('expired versions are removed with all their objects, and the others stay', { tags: 'slow' }, async () => {
    const id = await replaced('first', 'second one', 'third');
    const [newer, older] = await ofAsset(id);
    expect(await objects()).not.toEqual([]);
    expect(await expire(Number.POSITIVE_INFINITY)).toBe(0);
    expect(await expire(86_400_000)).toBe(0);
    expect(await ofAsset(id)).toHaveLength(2);

    await dayEarlier(older!);
    expect(await expire(43_200_000)).toBe(1);
    expect(await ofAsset(id)).toEqual([newer]);
    for (const { at: key, versionId } of older!.files)
      expect(await stage.ground.storage.head(key, { versionId })).toBeUndefined();

    expect(await expire(0)).toBe(1);
    expect(await ofAsset(id)).toEqual([]);
    expect(await objects()).toEqual([]);
    expect((await stage.store.assets.get(id))?.recordKey).toBeTruthy();
    expect(logged('version.expired').at(-1)).toMatchObject({ versions: 1 });
  });

  test('the only complete file of an asset stays, however old it is', async () => {
    const id = await replaced('good');
    await stage.admin.addFault({ endpoint: 'media', assetId: id, shortBy: 1, chunked: true });
    await stage.admin.changeAsset(id, { content: { text: 'not to be had' } });
    await stage.sync(at.connectionId, 'full');
    expect((await worker.work(id)).outcome).toBe('attempt_failed');
    await stage.admin.clearFaults();
    expect(await expire(0)).toBe(0);
    expect(await ofAsset(id)).toHaveLength(1);
    await worker.complete(id);
    expect(await expire(0)).toBe(1);
  });

  /** A new database, rebuilt from the bucket. */
  async function rebuilt() {
    const { storage } = stage.ground;
    const records = await newStore();
    const options = { onProblem() {}, signal };
    await rebuild({ store: records.store, storage, thumbnails: { mirror: true } }, options);
    return records;
  }

  test('the only complete file of an asset stays after a rebuild, which finds only that version', {
    tags: 'slow',
  }, async () => {
    const id = await replaced('good once');
    await stage.admin.addFault({ endpoint: 'media', assetId: id, shortBy: 1, chunked: true });
    await stage.admin.changeAsset(id, { content: { text: 'not to be had' } });
    await stage.sync(at.connectionId, 'full');
    await worker.work(id);
    await stage.admin.clearFaults();
    const records = await rebuilt();
    const [version] = await records.store.versions.ofAsset(id);
    expect(version).toBeDefined();
    await expire(0, stage.ground.storage, records.store);
    expect(await records.store.versions.ofAsset(id)).toEqual([version]);
    const [media] = version!.files;
    expect(await stage.ground.storage.head(media!.at, media)).toBeDefined();
    await records.close();
    await worker.complete(id);
    await expire(0);
  });

  test('the current file stays if a rebuild takes it for a version, too, because its replacement had begun', {
    tags: 'slow',
  }, async () => {
    const id = await replaced('current');
    const { media } = (await stage.store.assets.get(id))!;
    await stage.admin.changeAsset(id, { content: { text: 'the next one' } });
    await stage.sync(at.connectionId, 'full');
    const isKept = async () => (await objects()).some((key) => key.includes(id) && /Z\.json$/.test(key));
    for (let step = 1; !(await isKept()); step++) await worker.dieAt(id, step);
    const records = await rebuilt();
    expect(await records.store.versions.ofAsset(id)).toHaveLength(1);
    await expire(0, stage.ground.storage, records.store);
    expect(await records.store.versions.ofAsset(id)).toEqual([]);
    expect((await contentOf(stage.ground.storage, media!.key))?.toString()).toBe('current');
    await records.close();
    await worker.complete(id);
    await expire(0);
  });

  test('an object that two versions share is removed with the last of them', async () => {
    const id = await replaced('shared', 'next');
    const [version] = await ofAsset(id);
    const [file] = version!.files;
    await stage.store.versions.add([{ ...version!, replacedAt: new Date(version!.replacedAt.getTime() + 1) }]);
    expect(await expire(0)).toBe(2);
    expect(await stage.ground.storage.head(file!.at, { versionId: file!.versionId })).toBeUndefined();
    expect(await ofAsset(id)).toEqual([]);
  });

  test('a version that is locked is tried again later, is reported once, and delays no other', async () => {
    const [locked, other] = [await replaced('one', 'other one'), await replaced('two', 'other two')];
    const [version] = await ofAsset(locked);
    const refusing: Storage = {
      ...stage.ground.storage,
      async remove(key, options) {
        if (key === version!.files[0]!.at) throw new Error('this version may not be removed');
        await stage.ground.storage.remove(key, options);
      },
    };
    expect(await expire(0, refusing)).toBe(1);
    expect(await ofAsset(other)).toEqual([]);
    expect(await ofAsset(locked)).toHaveLength(1);
    expect(await expire(0, refusing)).toBe(0);
    await stage.query(`UPDATE asset_versions SET retry_at = now()`);
    expect(await expire(0, refusing)).toBe(0);
    expect(logged('version.expiry_failed')).toMatchObject([{ assetId: locked }]);
    await stage.query(`UPDATE asset_versions SET retry_at = now()`);
    expect(await expire(0)).toBe(1);
    expect(await objects()).toEqual([]);
  });
});
