// @module-tag slow
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { sidecarKeys, tombstoneKey, tombstones, versionKeys } from '../../../src/storage/keys.ts';
import type { DrillReport } from '../../../src/store/drills/drill-report.ts';
import { hashOf } from '../../../src/store/removals/tombstones.ts';
import { runDrill } from '../../../src/verify/drill/run-drill.ts';
import { silent } from '../../store/records.ts';
import { contentOf, grounds, keysOf } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

describe.each(grounds())('a restore drill ($name)', (kind) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  beforeAll(async () => {
    stage = await newStage(kind);
    worker = workerOf(stage);
  });
  afterEach(async () => {
    for (const key of await keysOf(stage.ground.storage)) await stage.ground.storage.remove(key);
    for await (const { key } of stage.ground.storage.list(tombstones)) await stage.ground.storage.remove(key);
    for await (const { key } of stage.ground.storage.list(versionKeys.prefix)) await stage.ground.storage.remove(key);
    await stage.query('DELETE FROM assets');
    await stage.query('DELETE FROM asset_versions');
    await stage.query('DELETE FROM tombstones');
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });

  /** Makes a drill. `first` runs when it has begun, `last` before assets are compared again. */
  async function drill(
    sample = 20,
    { first = async () => {}, last = async () => {} }: Record<string, () => Promise<unknown>> = {},
  ): Promise<DrillReport> {
    const { store, ground } = stage;
    const deps = {
      store,
      openBucket: async () => {
        await first();
        return { ...ground.storage, close: async () => {} };
      },
      checkSecrets: async () => {
        await last();
        return { checked: 0, unreadable: [] };
      },
      thumbnails: { mirror: true },
      log: silent,
    };
    const startedAt = new Date(await store.now());
    return runDrill(deps, { id: 'one', sample, startedAt }, new AbortController().signal);
  }
  const failuresOf = async (sample?: number) =>
    Object.fromEntries((await drill(sample)).failures.map(({ code, count }) => [code, count]));

  /** Assets that were mirrored some time ago. */
  async function mirrored(count: number) {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, count, { content: { text: 'a file' } });
    await stage.sync(connectionId, 'full');
    for (const id of ids) await worker.complete(id);
    const assets = await Promise.all(ids.map(async (id) => (await stage.store.assets.get(id))!));
    const keys = assets.map(({ media }) => media!.key);
    return { companyId, connectionId, ids, keys };
  }
  async function changeRecord(key: string, change: (record: Record<string, unknown>) => object): Promise<void> {
    const at = sidecarKeys.record(key);
    const record = JSON.parse((await contentOf(stage.ground.storage, at))!.toString());
    await stage.ground.storage.put(at, JSON.stringify({ ...record, ...change(record) }));
  }

  /** An asset whose file was replaced. */
  async function superseded() {
    const { connectionId, ids } = await mirrored(1);
    await stage.admin.changeAsset(ids[0]!, { content: { text: 'another file' } });
    await stage.sync(connectionId, 'full', { acceptReplaced: true });
    await worker.complete(ids[0]!);
    const [version] = await stage.store.versions.ofAsset(ids[0]!);
    return version!;
  }

  test('a drill fails for a superseded file without its objects, also if its record is there', async () => {
    const { files, assetId, replacedAt } = await superseded();
    expect(await drill()).toMatchObject({ passed: true, sample: { versions: 1 }, restored: { versions: 1 } });
    const { at, versionId } = files.find(({ role }) => role === 'media')!;
    await stage.ground.storage.remove(at, { versionId });
    expect(await drill()).toMatchObject({
      failures: [
        { code: 'version_missing', count: 1 },
        { code: 'object_damaged', count: 1 },
      ],
      loss: { oldest: replacedAt.toISOString(), examples: [{ assetId, key: at, code: 'version_missing' }] },
    });
  });

  test('a drill fails for a superseded file whose record is missing or names other files', async () => {
    const { assetId, replacedAt } = await superseded();
    const at = versionKeys.record(assetId, replacedAt);
    const record = JSON.parse((await contentOf(stage.ground.storage, at))!.toString());
    for (const file of record.files) file.crc32 = '00000000';
    await stage.ground.storage.put(at, JSON.stringify(record));
    expect(await failuresOf()).toEqual({ version_missing: 1 });
    await stage.ground.storage.remove(at);
    expect(await failuresOf()).toEqual({ version_missing: 1, object_damaged: 1 });
  });

  test.skipIf(kind.s3)('a drill reads superseded files, too', async () => {
    const { files } = await superseded();
    const { at } = files.find(({ role }) => role === 'media')!;
    await stage.ground.storage.put(at, 'b file');
    expect(await failuresOf()).toEqual({ object_damaged: 1 });
  });

  test('a drill skips a superseded file whose removal is tried again', async () => {
    const { files, replacedAt, assetId } = await superseded();
    for (const { at, versionId } of files) await stage.ground.storage.remove(at, { versionId });
    await stage.store.versions.beginRemoval({ assetId, replacedAt });
    expect(await failuresOf()).toEqual({});
  });

  test.each([
    ['due', `next_at = now() - interval '3 days'`],
    ['queued', `queued_at = now() - interval '3 days', next_at = now() - interval '3 days'`],
  ])('a drill fails for a lost record of an asset that is %s', async (_, set) => {
    const { ids, keys } = await mirrored(2);
    await stage.query(`UPDATE assets SET ${set} WHERE id = $1`, [ids[0]]);
    for (const key of [keys[0]!, sidecarKeys.record(keys[0]!)]) await stage.ground.storage.remove(key);
    expect(await drill(1)).toMatchObject({ passed: false, loss: { inProgress: 0 } });
  });

  test('a drill compares again in the end: a record that a worker has written meanwhile is no failure', async () => {
    const { keys } = await mirrored(2);
    const [lost, damaged] = keys.map(sidecarKeys.record) as [string, string];
    const was = (await contentOf(stage.ground.storage, lost))!;
    await stage.ground.storage.remove(lost);
    await stage.ground.storage.put(damaged, '{}');
    const report = await drill(1, { last: () => stage.ground.storage.put(lost, was) });
    const { failures, loss } = report;
    expect(failures.filter(({ code }) => code !== 'object_damaged')).toEqual([{ code: 'record_missing', count: 1 }]);
    expect(loss).toMatchObject({ compared: 2, inProgress: 0, examples: [{ key: keys[1] }] });
  });

  test('a drill fails for a lost record whose lease ends during the drill', async () => {
    const { ids, keys } = await mirrored(1);
    await stage.ground.storage.remove(sidecarKeys.record(keys[0]!));
    await stage.query(`UPDATE assets SET lease_until = now() + interval '1 hour' WHERE id = $1`, ids);
    expect(await drill()).toMatchObject({ loss: { inProgress: 1 } });
    const last = () => stage.query('UPDATE assets SET lease_until = NULL');
    const { failures, loss } = await drill(20, { last });
    expect(failures).toContainEqual({ code: 'record_missing', count: 1 });
    expect(loss).toMatchObject({ inProgress: 0 });
  });

  test.each([
    ['no checksums', ({ media }) => ({ media: { ...(media as object), checksums: {} } })],
    ['another content hash', ({ media }) => ({ media: withHash(media, 'ff'.repeat(32)) })],
    ['an earlier time', () => ({ mirroredAt: '2001-01-01T00:00:00.000Z' })],
    ['another company', () => ({ companyId: 'another' })],
  ] as Change[])('a drill fails for a record with %s', async (_, change) => {
    const { keys, ids } = await mirrored(1);
    await stage.query(
      `UPDATE assets SET media = jsonb_set(media, '{checksums,sha256}', to_jsonb(repeat('a', 64))) WHERE id = $1`,
      ids,
    );
    await changeRecord(keys[0]!, ({ media }) => ({ media: withHash(media, 'a'.repeat(64)) }));
    expect(await failuresOf(1)).not.toHaveProperty('record_differs');
    await changeRecord(keys[0]!, change);
    expect(await failuresOf(1)).toMatchObject({ record_differs: 1 });
  });

  test('a drill passes if the database has learned the content hash later', async () => {
    const { keys } = await mirrored(1);
    await changeRecord(keys[0]!, ({ media }) => ({ media: withHash(media, undefined) }));
    expect(await failuresOf(1)).not.toHaveProperty('record_differs');
  });

  test('a drill fails for the record of an asset that the database does not have', async () => {
    const { ids, keys } = await mirrored(2);
    const key = keys[0]!.replaceAll(ids[0]!, 'forged');
    const record = (await contentOf(stage.ground.storage, sidecarKeys.record(keys[0]!)))!.toString();
    await stage.ground.storage.put(key, 'a file');
    await stage.ground.storage.put(sidecarKeys.record(key), record.replaceAll(ids[0]!, 'forged'));
    expect(await drill()).toMatchObject({
      failures: [{ code: 'record_extra', count: 1 }],
      loss: { compared: 2, oldest: null, examples: [{ assetId: 'forged', key, code: 'record_extra' }] },
    });
  });

  test('a drill fails for a newer record of an asset at another key', async () => {
    const { ids, keys } = await mirrored(1);
    const key = keys[0]!.replaceAll(ids[0]!, 'forged');
    const record = JSON.parse((await contentOf(stage.ground.storage, sidecarKeys.record(keys[0]!)))!.toString());
    const forged = { ...record, media: { ...record.media, key }, mirroredAt: new Date().toISOString() };
    await stage.ground.storage.put(sidecarKeys.record(key), JSON.stringify(forged));
    expect(await failuresOf()).toEqual({ record_differs: 1 });
  });

  test('a drill passes while an asset is removed, and fails for the forged tombstone of one that was not', async () => {
    const { ids } = await mirrored(2);
    await stage.query(`UPDATE assets SET state = 'gone', next_at = NULL WHERE id = $1`, [ids[0]]);
    const first = () => stage.query('DELETE FROM assets WHERE id = $1', [ids[0]]);
    expect(await drill(1, { first })).toMatchObject({ passed: true });
    const hash = hashOf(ids[1]!);
    const tombstone = { version: 1, hash, erasedAt: new Date().toISOString(), erasedBy: 'nobody', reason: '' };
    await stage.ground.storage.put(tombstoneKey(hash), JSON.stringify(tombstone));
    expect(await failuresOf(1)).toMatchObject({ record_missing: 1 });
  });
});

type Change = [what: string, change: (record: Record<string, unknown>) => object];

function withHash(media: unknown, sha256: string | undefined): object {
  const { checksums, ...others } = media as { checksums: object };
  return { ...others, checksums: { ...checksums, sha256 } };
}
