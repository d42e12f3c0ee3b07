// @module-tag slow
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import type { RestoreRequest } from '../../../src/offline/restore.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { measure } from '../../../src/storage/meter.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { restore } from '../../../src/verify/copy/restore.ts';
import { newBucket } from '../../storage/grounds.ts';
import { mortal } from '../../support/mortal.ts';
import { spawned } from '../../support/spawned.ts';
import type { Stage } from '../../support/stage.ts';
import { until } from '../../support/until.ts';
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
  let textsIn: Restoring['textsIn'];
  let objectsOf: Restoring['objectsOf'];
  let newFilm: Restoring['newFilm'];
  beforeAll(async () => {
    made = await newRestoring(source);
    ({ stage, worker, newPlace, environment, to, textsIn, objectsOf, newFilm } = made);
  });
  afterAll(() => made?.close());

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
    expect(result).toMatchObject({ copied: 1, failed: 1 });
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
        expect(await restoring(target)).toMatchObject({ copied: 1, failed: 0 });
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
    expect(JSON.parse(stdout)).toMatchObject({ copied: 8, failed: 0 });
    expect(await sums(target)).toEqual(right);
    expect(await leftovers()).toEqual([]);
    await clear();
  });
});
