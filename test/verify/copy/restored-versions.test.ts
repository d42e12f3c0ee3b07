// @module-tag slow
import { readdir } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { versionName } from '../../../src/storage/keys.ts';
import type { Stage } from '../../support/stage.ts';
import { newRestoring, type Restoring, sources } from './restoring.ts';

describe.each(sources)('a restore from $name', (source) => {
  let made: Restoring | undefined;
  let stage: Stage;
  let worker: Restoring['worker'];
  let at: Restoring['at'];
  let newPlace: Restoring['newPlace'];
  let to: Restoring['to'];
  let restored: Restoring['restored'];
  let textsAt: Restoring['textsAt'];
  let objectsOf: Restoring['objectsOf'];
  let newFilm: Restoring['newFilm'];
  let replace: Restoring['replace'];
  beforeAll(async () => {
    made = await newRestoring(source);
    ({ stage, worker, at, newPlace, to, restored, textsAt, objectsOf, newFilm, replace } = made);
  });
  afterAll(() => made?.close());

  test('the good file of a ransomed asset is restored by its version, with sidecars and record, byte for byte', async () => {
    const id = await newFilm('the good one');
    const good = await objectsOf(id);
    expect(Object.keys(good)).toHaveLength(6);
    await replace(id, 'encrypted', 'pay.mp4');
    const [version] = await stage.store.versions.ofAsset(id);

    const path = newPlace();
    const so = await restored({ to: to(path), assetIds: [id], version: versionName(version!.replacedAt) });
    expect(so).toMatchObject({
      copied: 1,
      present: 0,
      failed: 0,
      total: { assets: 1, bytes: version!.bytes },
      problems: [],
    });
    expect(await readdir(path)).toEqual([at.companyId]);
    expect(await textsAt(path)).toEqual(good);

    const now = newPlace();
    expect(await restored({ to: to(now), assetIds: [id] })).toMatchObject({ copied: 1, failed: 0 });
    expect(await textsAt(now)).toEqual(await objectsOf(id));

    // The current file is damaged: the earlier version is copied, and does not pass for the current one.
    const { media } = (await stage.store.assets.get(id))!;
    await stage.ground.storage.put(media!.key, 'DAMAGED');
    await stage.store.contents.requestRepair(id, [{ kind: 'media', remedy: 'fetch' }]);
    const instead = newPlace();
    expect(await restored({ to: to(instead), assetIds: [id] })).toMatchObject({
      copied: 0,
      failed: 1,
      problems: [expect.stringContaining(`asset ${id}: its current file is not complete in the bucket`)],
    });
    expect(await textsAt(instead)).toEqual(good);

    // So it is while another file replaces the current one.
    await stage.query(`UPDATE assets SET mirrored_at = NULL WHERE id = $1`, [id]);
    expect(await restored({ to: to(newPlace()), assetIds: [id] })).toMatchObject({ copied: 0, failed: 1 });
  });

  test('a restore of a date has what was current then: no later file, and none that was deleted before', async () => {
    const { companyId, connectionId } = await stage.company();
    const [first, second] = [
      await newFilm('one', companyId, connectionId),
      await newFilm('two', companyId, connectionId),
    ];
    const [early, other] = [await objectsOf(first), await objectsOf(second)];
    const before = new Date((await stage.store.now()) + 1);
    await stage.admin.changeAsset(first, { content: { text: 'one, changed' } });
    await stage.admin.removeAsset(second);
    await stage.sync(connectionId, 'full');
    await worker.complete(first);
    const third = await newFilm('three', companyId, connectionId);
    const after = new Date((await stage.store.now()) + 1);

    const [then, later] = [newPlace(), newPlace()];
    expect(await restored({ to: to(then), companyId, asOf: before })).toMatchObject({
      copied: 2,
      failed: 0,
      problems: [],
    });
    expect(await textsAt(then)).toEqual({ ...early, ...other });
    expect(await restored({ to: to(later), companyId, asOf: after })).toMatchObject({ copied: 2, failed: 0 });
    expect(await textsAt(later)).toEqual({ ...(await objectsOf(first)), ...(await objectsOf(third)) });
    expect(await restored({ to: to(newPlace()), companyId, asOf: new Date(0) })).toMatchObject({
      copied: 0,
      failed: 0,
    });
    expect(await restored({ to: to(newPlace()), assetIds: [third], asOf: before })).toMatchObject({
      copied: 0,
      failed: 1,
      problems: [expect.stringContaining(`asset ${third}: it had no copy in the bucket at that time`)],
    });
  });

  test('a repaired file is still the one that was mirrored first, with the transcript that only the bucket has', async () => {
    const { companyId, connectionId } = await stage.company();
    const id = await newFilm('damaged later', companyId, connectionId);
    const { mirroredAt, media } = (await stage.store.assets.get(id))!;
    const then = new Date((await stage.store.now()) + 1);
    const stored = await objectsOf(id);
    await stage.ground.storage.put(media!.key, 'DAMAGED LATER');
    await stage.admin.changeAsset(id, { hasTranscript: false, transcript: null });
    await stage.store.contents.requestRepair(id, [{ kind: 'media', remedy: 'fetch' }]);
    const request = { companyId, asOf: then };
    expect(await restored({ to: to(newPlace()), ...request })).toMatchObject({
      failed: 1,
      problems: [expect.stringContaining('it has no complete copy in the bucket')],
    });

    // An attempt that fails after it has begun changes nothing of this.
    await stage.admin.addFault({ endpoint: 'media', assetId: id, times: 9, shortBy: 1, chunked: true });
    await worker.work(id);
    await stage.admin.clearFaults();
    await worker.complete(id);
    const recordKey = `${media!.key}.asset.json`;
    expect({ ...(await objectsOf(id)), [recordKey]: '' }).toEqual({ ...stored, [recordKey]: '' });
    expect((await stage.store.assets.get(id))!).toMatchObject({ mirroredAt, transcriptState: 'mirrored' });
    expect(JSON.parse((await objectsOf(id))[recordKey]!)).toMatchObject({
      mirroredAt: mirroredAt!.toISOString(),
      transcript: { state: 'mirrored' },
    });
    const path = newPlace();
    expect(await restored({ to: to(path), ...request })).toMatchObject({ copied: 1, failed: 0 });
    expect(await textsAt(path)).toEqual(await objectsOf(id));
    expect(await stage.events({ kind: 'asset.replaced', assetId: id })).toEqual([]);

    // The library has changed its file without another length or date: the copy has these bytes since now.
    await stage.ground.storage.put(media!.key, 'DAMAGED AGAIN');
    await stage.admin.changeAsset(id, { content: { text: 'changed later' } });
    await stage.store.contents.requestRepair(id, [{ kind: 'media', remedy: 'fetch' }]);
    await worker.complete(id);
    const repaired = (await stage.store.assets.get(id))!;
    expect(repaired.media).toMatchObject({ key: media!.key, version: media!.version });
    expect(repaired.mirroredAt!.getTime()).toBeGreaterThan(then.getTime());
    const record = JSON.parse((await objectsOf(id))[recordKey]!);
    expect(Date.parse(record.mirroredAt)).toBeGreaterThan(then.getTime());
  });
});
