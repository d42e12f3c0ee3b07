// @module-tag slow

import { execFile } from 'node:child_process';
import { symlink } from 'node:fs/promises';
import { promisify } from 'node:util';
import { HeadObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { versionName } from '../../../src/storage/keys.ts';
import type { Selection } from '../../../src/verify/copy/select-copies.ts';
import { newBucket } from '../../storage/grounds.ts';
import { contentOf } from '../../support/mirror.ts';
import { spawned } from '../../support/spawned.ts';
import type { Stage } from '../../support/stage.ts';
import { newRestoring, type Restoring, sources } from './restoring.ts';

const run = promisify(execFile);

describe.each(sources)('a restore from $name', (source) => {
  const { s3 } = source;
  let made: Restoring | undefined;
  let stage: Stage;
  let worker: Restoring['worker'];
  let newPlace: Restoring['newPlace'];
  let environment: Restoring['environment'];
  let to: Restoring['to'];
  let restored: Restoring['restored'];
  let textsIn: Restoring['textsIn'];
  let textsAt: Restoring['textsAt'];
  let objectsOf: Restoring['objectsOf'];
  let newFilm: Restoring['newFilm'];
  let replace: Restoring['replace'];
  beforeAll(async () => {
    made = await newRestoring(source);
    ({ stage, worker, newPlace, environment, to, restored, textsIn, textsAt, objectsOf, newFilm, replace } = made);
  });
  afterAll(() => made?.close());

  test('files that are there already stay, and others are replaced only on request', async () => {
    const id = await newFilm('right');
    const path = newPlace();
    await restored({ to: to(path), assetIds: [id] });
    const all = await textsAt(path);
    expect(await restored({ to: to(path), assetIds: [id] })).toMatchObject({ copied: 1, present: 1 });

    const there = await openDirectory({ path });
    const key = Object.keys(all).find((each) => each.endsWith('film.mp4'))!;
    await there.put(key, 'WRONG');
    const so = await restored({ to: to(path), assetIds: [id] });
    expect(so).toMatchObject({ copied: 0, failed: 1 });
    expect(so.problems).toEqual([`asset ${id}: ${key} is there with other content; --overwrite replaces it`]);
    expect((await contentOf(there, key))!.toString()).toBe('WRONG');
    expect(await restored({ to: to(path), assetIds: [id], overwrite: true })).toMatchObject({
      copied: 1,
      present: 0,
    });
    expect(await textsAt(path)).toEqual(all);
  });

  test('a place that belongs to a mirror is refused, also this mirror under another name', async () => {
    const id = await newFilm('the old one');
    await replace(id, 'the current one');
    const [version] = await stage.store.versions.ofAsset(id);
    const current = await objectsOf(id);
    const other = newPlace();
    await (await openDirectory({ path: other })).put('_mirror/id', 'another mirror');
    const places = [other];
    if (!s3) {
      places.push(newPlace());
      await symlink(stage.ground.environment.STORAGE_URL!.slice('file://'.length), places[1]!);
    }
    for (const path of places) {
      const request = { to: to(path), assetIds: [id], version: versionName(version!.replacedAt), overwrite: true };
      await expect(restored(request)).rejects.toThrow('The target belongs to a mirror');
    }
    expect(await objectsOf(id)).toEqual(current);
  });

  test('a damaged file is not restored, and fails no other', async () => {
    const [bad, good] = [await newFilm('damaged'), await newFilm('healthy')];
    const { media } = (await stage.store.assets.get(bad))!;
    await stage.ground.storage.put(media!.key, 'DAMAGED');
    const path = newPlace();
    const so = await restored({ to: to(path), assetIds: [bad, good] });
    expect(so).toMatchObject({ copied: 1, failed: 1 });
    expect(so.problems).toEqual([expect.stringContaining(`${media!.key} is damaged: it has CRC-32`)]);
    expect(await textsAt(path)).toEqual(await objectsOf(good));
    expect(await (await openDirectory({ path })).head(media!.key)).toBeUndefined();
  });

  test('assets are selected by company, project and connection', async () => {
    const [one, two] = [await stage.company(), await stage.company()];
    await stage.admin.addProject({ id: `project-${one.companyId}`, companyId: one.companyId, name: 'P' });
    const projectId = `project-${one.companyId}`;
    const [inProject] = await stage.upload(one.companyId, 1, { projectId, content: { text: 'p' } });
    const [other] = await stage.upload(one.companyId, 1, { content: { text: 'o' } });
    const [elsewhere] = await stage.upload(two.companyId, 1, { content: { text: 'e' } });
    for (const { connectionId } of [one, two]) await stage.sync(connectionId, 'full');
    for (const id of [inProject, other, elsewhere]) await worker.complete(id!);
    const ids = async (selection: Selection) => {
      const path = newPlace();
      await restored({ to: to(path), ...selection });
      const keys = Object.keys(await textsAt(path)).filter((key) => !key.endsWith('.asset.json'));
      return keys.map((key) => key.split('/')[2]).sort();
    };
    expect(await ids({ companyId: one.companyId })).toEqual([inProject, other].sort());
    expect(await ids({ projectId })).toEqual([inProject]);
    // It is in the project since the last listing; its worker has not asked for it again yet.
    await stage.admin.changeAsset(other!, { projectId });
    await stage.sync(one.connectionId, 'full');
    expect(await ids({ projectId })).toEqual([inProject, other].sort());
    await expect(ids({ companyId: two.companyId, projectId })).rejects.toThrow('No asset in the bucket matches');
    expect(await ids({ connection: two.connectionId })).toEqual([elsewhere]);
    expect(await ids({ connection: `${two.userId}@example.com` })).toEqual([elsewhere]);
    await expect(ids({ connection: 'nobody' })).rejects.toThrow('No connection has the id, e-mail or name nobody.');
    await expect(ids({ assetIds: [other!, 'unknown'] })).rejects.toThrow('There is no asset unknown.');
    await expect(ids({ companyId: 'unknown' })).rejects.toThrow('No asset in the bucket matches these options.');
    await expect(ids({ assetIds: [other!], version: 'x' })).rejects.toThrow('There is no version x. None is kept.');
  });

  test('the verb exits with 0, with 1 if an asset failed, and with 2 after wrong usage', async () => {
    const id = await newFilm('by verb');
    const env = { ...spawned, ...environment() };
    const restore = async (...words: string[]) => {
      const done = await run(process.execPath, ['src/main.ts', 'restore', ...words], { env }).catch((error) => error);
      return { code: done.code ?? 0, output: `${done.stdout}${done.stderr}` };
    };
    const path = newPlace();
    const first = await restore(id, '--to', path);
    expect(first).toMatchObject({ code: 0, output: expect.stringMatching(/1 asset restored, /) });
    expect(await textsAt(path)).toEqual(await objectsOf(id));
    const { media } = (await stage.store.assets.get(id))!;
    await (await openDirectory({ path })).put(media!.key, 'other');
    const second = await restore(id, '--to', path, '--json');
    expect(second.code).toBe(1);
    expect(JSON.parse(second.output)).toMatchObject({
      copied: 0,
      failed: 1,
      problems: [expect.stringContaining(media!.key)],
    });
    for (const words of [
      ['--to', path],
      [id],
      ['unknown', '--to', path],
      [id, '--to', path, '--version', '20260131T120000000Z'],
      [id, '--to', path, '--as-of', 'yesterday'],
      [id, '--to', stage.ground.environment.STORAGE_URL!],
    ]) {
      expect({ words, ...(await restore(...words)) }).toMatchObject({ words, code: 2 });
    }
  });

  if (s3) {
    test('a restore can go to a prefix of another bucket', async () => {
      const id = await newFilm('to a bucket');
      const ground = await newBucket(s3, { prefix: 'restored/here' });
      const so = await restored({ to: { kind: 's3', bucket: ground.bucket, prefix: 'restored/here' }, assetIds: [id] });
      expect(so).toMatchObject({ copied: 1, failed: 0 });
      expect(await textsIn(ground.storage)).toEqual(await objectsOf(id));
      expect(
        await restored({ to: { kind: 's3', bucket: ground.bucket, prefix: 'restored/here' }, assetIds: [id] }),
      ).toMatchObject({ present: 1 });
      await ground.clear();
    });

    test('an mp4 rendition is restored with its own content type, not that of the original', async () => {
      const { companyId, connectionId } = made!.at;
      const [id] = await stage.upload(companyId, 1, {
        ...{ filename: 'film.mov', mimeType: 'video/quicktime', assetType: 'videos', content: { text: 'original' } },
        ...{ originalGone: true, mp4: { text: 'ftyp: the rendition' } },
      });
      await stage.admin.addFault({ endpoint: 'mp4', assetId: id!, headers: { 'content-type': 'video/mp4' } });
      await stage.sync(connectionId, 'full');
      await worker.complete(id!);
      const { media } = (await stage.store.assets.get(id!))!;
      const { bucket, raw, ...ground } = await newBucket(s3, { prefix: 'restored/here' });
      const so = await restored({ to: { kind: 's3', bucket, prefix: 'restored/here' }, assetIds: [id!] });
      expect(so).toMatchObject({ copied: 1, failed: 0 });
      const head = new HeadObjectCommand({ Bucket: bucket, Key: `restored/here/${media!.key}` });
      expect(await raw.send(head)).toMatchObject({ ContentType: 'video/mp4' });
      await ground.clear();
    });
  }
});
