import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { Archived } from '../../src/floor/errors.ts';
import { rebuildFrom } from '../../src/offline/rebuild.ts';
import { versionKeys, versionName } from '../../src/storage/keys.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { openStore } from '../../src/store/store.ts';
import { compareVersions } from '../../src/verify/compare-versions.ts';
import { nothingFound } from '../../src/verify/counts.ts';
import { differencesAmong } from '../../src/verify/finding.ts';
import { writeInventory } from '../../src/verify/publish/inventory.ts';
import { rebuild } from '../../src/verify/rebuild/rebuild.ts';
import { newDatabase } from '../support/database.ts';
import { contentOf, libraryEnvironment } from '../support/mirror.ts';
import { spawned } from '../support/spawned.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';

const run = promisify(execFile);
const s3 = inject('s3');
const signal = new AbortController().signal;

describe.each([
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
])('superseded files in $name', ({ s3, versions }) => {
  let stage: Stage;
  let worker: ReturnType<typeof workerOf>;
  let id: string;
  beforeAll(async () => {
    stage = await newStage({ s3, versions });
    worker = workerOf(stage);
    const { companyId, connectionId } = await stage.company();
    const [uploaded] = await stage.upload(companyId, 1, {
      filename: 'old.png',
      mimeType: 'image/png',
      thumbnail: true,
      content: { text: 'first' },
    });
    id = uploaded!;
    for (const text of ['first', 'second one', 'the third']) {
      await stage.admin.changeAsset(id, { content: { text }, filename: `${text}.png` });
      await stage.sync(connectionId, 'full');
      await worker.complete(id);
    }
  });
  afterAll(async () => {
    await worker?.close();
    await stage?.close();
  });
  const kept = () => stage.store.versions.ofAsset(id);

  test('the API, the status and the inventory list them', async () => {
    const rows = await kept();
    expect(rows).toHaveLength(2);
    const [newest] = rows;
    const { versions: listed } = await stage.mirror.api('GET', `/assets/${id}/versions`);
    expect(listed.map(({ version }: { version: string }) => version)).toEqual(
      rows.map((row) => versionName(row.replacedAt)),
    );
    expect(listed[0]).toMatchObject({
      mirroredAt: newest!.mirroredAt.toISOString(),
      replacedAt: newest!.replacedAt.toISOString(),
      expiresAt: new Date(newest!.replacedAt.getTime() + 90 * 86_400_000).toISOString(),
      bytes: newest!.bytes,
      media: { key: newest!.media.key, bytes: 10, checksums: { crc32: newest!.media.checksums.crc32 } },
      reason: { code: 'superseded', text: 'the library has another file: its size changed' },
    });
    await expect(stage.mirror.api('GET', '/assets/unknown/versions')).rejects.toThrow('404');
    const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
    expect((await stage.mirror.api('GET', '/status')).versions).toEqual({ count: 2, bytes });

    const { log } = stage.mirror.service.context;
    const { storage } = stage.ground;
    const day = '2026-01-31';
    const { keepVersions, goneRetention } = stage.mirror.service.context.config;
    const retention = { keepVersions, goneRetention };
    const manifest = await writeInventory(
      { store: stage.store, storage, log, ...retention },
      { day, now: new Date(), signal },
    );
    expect(manifest.versions).toEqual({ count: 2, bytes });
    const lines = gunzipSync((await contentOf(storage, `_mirror/inventory/${day}/assets-00001.jsonl.gz`))!).toString();
    const line = lines
      .split('\n')
      .map((each) => each && JSON.parse(each))
      .find((each) => each.id === id);
    expect(line.versions.map(({ version }: { version: string }) => version)).toEqual(
      rows.map((row) => versionName(row.replacedAt)),
    );
    expect(line.versions[0].objects).toHaveLength(newest!.files.length);
  });

  test('the verb lists the current file and the superseded ones', async () => {
    const { publicUrl, environment } = stage.ground;
    const env = { ...spawned, ASSET_MIRROR_URL: publicUrl, ADMIN_TOKEN: environment.ADMIN_TOKEN };
    const { stdout } = await run(process.execPath, ['src/main.ts', 'versions', id], { env });
    const [, current, ...rows] = stdout.trim().split('\n');
    expect(current).toContain('current');
    const expected = (await kept()).map(({ replacedAt, media }) => [versionName(replacedAt), media.checksums.crc32]);
    expect(rows.map((row) => row.split(/ +/))).toEqual(
      expected.map(([name, crc32]) => expect.arrayContaining([name, crc32, 'library', 'changed'])),
    );
  });

  test('a rebuild restores superseded files from the bucket', { tags: 'slow' }, async () => {
    const database = await newDatabase({ empty: true });
    const config = readConfig({
      ...stage.ground.environment,
      ...libraryEnvironment(stage.library),
      DATABASE_URL: database.url,
    });
    const { log } = stage.mirror.service.context;
    const problems: string[] = [];
    const report = { start() {}, problem: (line: string) => problems.push(line), progress() {} };
    await stage.ground.storage.put(`${versionKeys.prefix}x/20260131T120000000Z.json`, '{}');
    for (const [restored, skipped] of [
      [2, 1],
      [0, 1],
    ]) {
      expect(await rebuildFrom(config, { log, stop: signal, report })).toMatchObject({ versions: restored, skipped });
    }
    expect(problems[0]).toContain('is not the record of a version');
    await stage.ground.storage.remove(`${versionKeys.prefix}x/20260131T120000000Z.json`);
    const store = await openStore({ url: database.url, log });
    expect(await store.versions.ofAsset(id)).toEqual(await kept());
    await store.close();
    await database.drop();
  });

  test('a rebuild skips the record of a version that cannot be read, and restores the others', async () => {
    const database = await newDatabase();
    const store = await openStore({ url: database.url, log: stage.mirror.service.context.log });
    const { storage } = stage.ground;
    const [newest] = await kept();
    const unreadable = versionKeys.record(id, newest!.replacedAt);
    const get: Storage['get'] = (key, options) =>
      key === unreadable ? Promise.reject(new Archived()) : storage.get(key, options);
    const problems: string[] = [];
    const found = await rebuild(
      { store, storage: { ...storage, get }, thumbnails: { mirror: true } },
      { signal, onProblem: (line) => problems.push(line) },
    );
    expect(found).toMatchObject({ versions: 1, skipped: 1 });
    expect(problems).toEqual([expect.stringContaining(`${unreadable}: could not be read`)]);
    await store.close();
    await database.drop();
  });

  test('an archived one is compared by its length, and is no difference', async () => {
    const archiving: Storage = {
      ...stage.ground.storage,
      get: () => Promise.reject(new Archived()),
    };
    const counts = { ...nothingFound };
    const lines = await compareVersions({ store: stage.store, storage: archiving }, await kept(), {
      deep: true,
      counts,
      signal,
    });
    expect(lines).toEqual(lines.map(() => expect.objectContaining({ mark: '=' })));
    expect(counts.archived).toBe((await kept()).flatMap(({ files }) => files).length);
  });

  test('a verification finds missing and damaged superseded files', async () => {
    const { storage } = stage.ground;
    const all = { deep: true, signal, counts: { ...nothingFound } };
    const compared = async (options = all) =>
      differencesAmong(await compareVersions({ store: stage.store, storage }, await kept(), options));
    expect(await compared()).toEqual([]);
    const [newest, oldest] = await kept();
    const record = versionKeys.record(id, newest!.replacedAt);
    await storage.remove(record);
    const media = oldest!.files.find(({ role }) => role === 'media')!;
    const thumbnail = oldest!.files.find(({ role }) => role === 'thumbnail')!;
    if (media.versionId) await storage.remove(media.at, media);
    else await storage.put(media.at, 'FIRST');
    await storage.remove(thumbnail.at, thumbnail);
    const found = await compared();
    expect(found.map(({ mark, key }) => [mark, key])).toEqual([
      ['-', record],
      [media.versionId ? '-' : '*', media.at],
      ['-', thumbnail.at],
    ]);
    const code = media.versionId ? 'missing_object' : 'wrong_checksum';
    const version = versionName(oldest!.replacedAt);
    expect(found[1]!.reason).toMatchObject({ code, kind: 'media', version });
    for (const { assetId, replacedAt } of [newest!, oldest!]) {
      await stage.store.versions.beginRemoval({ assetId, replacedAt });
    }
    expect(await compared()).toEqual([]);
    const { id: run } = await stage.mirror.api('POST', '/verify', {});
    expect(run).toBeTruthy();
  });
});
