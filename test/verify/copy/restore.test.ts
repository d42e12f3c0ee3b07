// @module-tag slow
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import { type RestoreRequest, restoreFrom } from '../../../src/offline/restore.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { measure } from '../../../src/storage/meter.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { versionName } from '../../../src/storage/version-name.ts';
import { restore } from '../../../src/verify/copy/restore.ts';
import type { Selection } from '../../../src/verify/copy/select-copies.ts';
import { newBucket } from '../../storage/grounds.ts';
import { contentOf } from '../../support/mirror.ts';
import { mortal } from '../../support/mortal.ts';
import { spawned } from '../../support/spawned.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { until } from '../../support/until.ts';
import { workerOf } from '../../support/worker.ts';

const run = promisify(execFile);
const s3 = inject('s3');

describe.each([
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
])('a restore from $name', ({ s3, versions }) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  let at: Awaited<ReturnType<Stage['company']>>;
  let home: string;
  beforeAll(async () => {
    stage = await newStage({ s3, versions });
    worker = workerOf(stage);
    at = await stage.company();
    home = await mkdtemp(join(tmpdir(), 'asset-mirror-restore-'));
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
    await rm(home, { recursive: true, force: true });
  });

  let places = 0;
  /** A new directory to restore to. */
  const newPlace = () => join(home, String(++places));
  /** Database and bucket, and nothing of a library, as on a machine that only restores. */
  const environment = () =>
    Object.fromEntries(
      Object.entries(stage.ground.environment).filter(([name]) => /^(DATABASE_URL|STORAGE_URL|S3_|AWS_)/.test(name)),
    );
  const to = (path: string) => ({ kind: 'directory' as const, path });

  async function restored(request: Partial<RestoreRequest> & Pick<RestoreRequest, 'to'>) {
    const problems: string[] = [];
    const report = { start() {}, problem: (line: string) => problems.push(line), progress() {} };
    const { log } = stage.mirror.service.context;
    const stop = new AbortController().signal;
    const so = await restoreFrom(
      readCopyConfig(environment()),
      { overwrite: false, ...request },
      { log, stop, report },
    );
    return { ...so, problems };
  }
  /** All objects below a place, as text by key. */
  async function textsIn(storage: Storage): Promise<Record<string, string>> {
    const texts: Record<string, string> = {};
    for await (const { key } of storage.list('')) {
      if (!key.startsWith('_mirror/')) texts[key] = (await contentOf(storage, key))!.toString('latin1');
    }
    return texts;
  }
  const textsAt = async (path: string) => textsIn(await openDirectory({ path }));
  async function objectsOf(id: string): Promise<Record<string, string>> {
    const all = Object.entries(await textsIn(stage.ground.storage));
    return Object.fromEntries(all.filter(([key]) => key.includes(`/${id}/`)));
  }

  async function newFilm(text: string, companyId = at.companyId, connectionId = at.connectionId): Promise<string> {
    const transcript = { language: 'de', durationSec: 3, text, vtt: `WEBVTT\n\n${text}\n`, words: null };
    const [id] = await stage.upload(companyId, 1, {
      ...{ filename: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos', thumbnail: true },
      ...{ hasTranscript: true, transcript, content: { text } },
    });
    await stage.sync(connectionId, 'full');
    await worker.complete(id!);
    return id!;
  }
  async function replace(id: string, text: string, filename = 'film.mp4'): Promise<void> {
    await stage.admin.changeAsset(id, { content: { text }, filename });
    await stage.sync(at.connectionId, 'full');
    await worker.complete(id);
  }

  test('the good file of a ransomed asset is restored by its version, with sidecars and record, byte for byte', async () => {
    const id = await newFilm('the good one');
    const good = await objectsOf(id);
    expect(Object.keys(good)).toHaveLength(6);
    await replace(id, 'encrypted', 'pay.mp4');
    const [version] = await stage.store.versions.ofAsset(id);

    const path = newPlace();
    const so = await restored({ to: to(path), assetIds: [id], version: versionName(version!.replacedAt) });
    expect(so).toMatchObject({
      restored: 1,
      present: 0,
      failed: 0,
      total: { assets: 1, bytes: version!.bytes },
      problems: [],
    });
    expect(await readdir(path)).toEqual([at.companyId]);
    expect(await textsAt(path)).toEqual(good);

    const now = newPlace();
    expect(await restored({ to: to(now), assetIds: [id] })).toMatchObject({ restored: 1, failed: 0 });
    expect(await textsAt(now)).toEqual(await objectsOf(id));
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
      restored: 2,
      failed: 0,
      problems: [],
    });
    expect(await textsAt(then)).toEqual({ ...early, ...other });
    expect(await restored({ to: to(later), companyId, asOf: after })).toMatchObject({ restored: 2, failed: 0 });
    expect(await textsAt(later)).toEqual({ ...(await objectsOf(first)), ...(await objectsOf(third)) });
    expect(await restored({ to: to(newPlace()), companyId, asOf: new Date(0) })).toMatchObject({
      restored: 0,
      failed: 0,
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
    expect(await restored({ to: to(path), ...request })).toMatchObject({ restored: 1, failed: 0 });
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

  test('files that are there already stay, and others are replaced only on request', async () => {
    const id = await newFilm('right');
    const path = newPlace();
    await restored({ to: to(path), assetIds: [id] });
    const all = await textsAt(path);
    expect(await restored({ to: to(path), assetIds: [id] })).toMatchObject({ restored: 1, present: 1 });

    const there = await openDirectory({ path });
    const key = Object.keys(all).find((each) => each.endsWith('film.mp4'))!;
    await there.put(key, 'WRONG');
    const so = await restored({ to: to(path), assetIds: [id] });
    expect(so).toMatchObject({ restored: 0, failed: 1 });
    expect(so.problems).toEqual([`asset ${id}: ${key} is there with other content; --overwrite replaces it`]);
    expect((await contentOf(there, key))!.toString()).toBe('WRONG');
    expect(await restored({ to: to(path), assetIds: [id], overwrite: true })).toMatchObject({
      restored: 1,
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
    expect(so).toMatchObject({ restored: 1, failed: 1 });
    expect(so.problems).toEqual([expect.stringContaining(`${media!.key} is damaged: it has CRC-32`)]);
    expect(await textsAt(path)).toEqual(await objectsOf(good));
    expect(await (await openDirectory({ path })).head(media!.key)).toBeUndefined();
  });

  /** Where a restore goes. */
  interface Target {
    to: RestoreRequest['to'];
    storage: Storage;
    leftovers(): Promise<string[]>;
    clear(): Promise<void>;
  }
  async function newTarget(kind: string): Promise<Target> {
    if (kind === 'a bucket') {
      const { bucket, ...ground } = await newBucket(s3!, { prefix: 'restored' });
      return { ...ground, to: { kind: 's3', bucket, prefix: 'restored' } };
    }
    const path = newPlace();
    return {
      to: to(path),
      storage: await openDirectory({ path }),
      // The drafts of a killed process stay for an hour, because another one may be writing them.
      leftovers: async () => [],
      clear: () => rm(path, { recursive: true }),
    };
  }
  const targets = s3 ? ['a directory', 'a bucket'] : ['a directory'];

  test('a restore goes on after a file that the bucket refuses', async () => {
    const [refused, other] = [await newFilm('refused'), await newFilm('other')];
    const { storage: target, clear } = await newTarget('a directory');
    const { storage } = stage.ground;
    const result = await restore(
      {
        ...{ store: stage.store, target, keepVersions: 1 },
        storage: {
          ...storage,
          async get(key, options) {
            if (key.includes(refused)) throw new StorageUnavailable('the store denies access');
            return storage.get(key, options);
          },
        },
      },
      {
        ...{ selection: { assetIds: [refused, other] }, overwrite: false, onProblem() {}, onProgress() {} },
        signal: new AbortController().signal,
      },
    );
    expect(result).toMatchObject({ restored: 1, failed: 1 });
    await clear();
  });

  test.each(targets)(
    'a restore to %s that dies at any step has whole files only, and can be continued',
    async (kind) => {
      const id = await newFilm('in steps');
      const all = await objectsOf(id);
      let steps = 0;
      for (let died = true; died; ) {
        const { storage: target, clear } = await newTarget(kind);
        const { store } = stage;
        const restoring = (to: Storage) =>
          restore(
            { store, storage: stage.ground.storage, target: to, keepVersions: 1 },
            {
              ...{ selection: { assetIds: [id] }, overwrite: false, onProblem() {}, onProgress() {} },
              signal: new AbortController().signal,
            },
          );
        died = (await restoring(mortal(++steps)(target, ['head', 'get']))).failed > 0;
        const there = await textsIn(target);
        expect(Object.keys(there)).toHaveLength(Math.min(steps - 1, 6));
        expect(all).toMatchObject(there);
        if (Object.keys(there).some((key) => key.endsWith('.asset.json'))) expect(there).toEqual(all);
        expect(await restoring(target)).toMatchObject({ restored: 1, failed: 0 });
        expect(await textsIn(target)).toEqual(all);
        await clear();
      }
      expect(steps).toBe(7);
    },
  );

  test.each(targets)('a restore to %s that is killed again and again leaves no half file, and ends', async (kind) => {
    const { companyId, connectionId } = await stage.company();
    const kindOf = { mimeType: 'application/octet-stream', assetType: 'documents' };
    const ids: string[] = [];
    for (let n = 0; n < 8; n++) {
      const content = { seed: `large ${n}`, size: 12 * 2 ** 20 };
      ids.push(...(await stage.upload(companyId, 1, { ...kindOf, name: `${n}.bin`, content })));
    }
    await stage.sync(connectionId, 'full');
    for (const id of ids) await worker.complete(id);
    const sums = async (storage: Storage) => {
      const found: Record<string, string> = {};
      for await (const { key } of storage.list(`${companyId}/`))
        found[key] = (await measure((await storage.get(key))!)).crc32;
      return found;
    };
    const right = await sums(stage.ground.storage);
    expect(Object.keys(right)).toHaveLength(16);

    const { to, storage: target, leftovers, clear } = await newTarget(kind);
    const where = to.kind === 's3' ? `s3://${to.bucket}/${to.prefix}` : to.path;
    const words = ['src/main.ts', 'restore', '--company', companyId, '--to', where, '--json'];
    const env = { ...spawned, ...environment() };
    const count = async () => (await Array.fromAsync(target.list(`${companyId}/`))).length;
    for (let kills = 0; kills < 4; kills++) {
      const child = spawn(process.execPath, words, { env, stdio: 'ignore' });
      const ended = once(child, 'exit');
      await until('some files', async () => child.exitCode !== null || (await count()) >= 3 * kills + 1);
      child.kill('SIGKILL');
      await ended;
      const there = await sums(target);
      expect(right).toMatchObject(there);
    }
    const { stdout } = await run(process.execPath, words, { env });
    expect(JSON.parse(stdout)).toMatchObject({ restored: 8, failed: 0 });
    expect(await sums(target)).toEqual(right);
    expect(await leftovers()).toEqual([]);
    await clear();
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
      restored: 0,
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
      expect(so).toMatchObject({ restored: 1, failed: 0 });
      expect(await textsIn(ground.storage)).toEqual(await objectsOf(id));
      expect(
        await restored({ to: { kind: 's3', bucket: ground.bucket, prefix: 'restored/here' }, assetIds: [id] }),
      ).toMatchObject({ present: 1 });
      await ground.clear();
    });
  }
});
