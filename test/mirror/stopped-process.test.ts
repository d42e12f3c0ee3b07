// @module-tag slow
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { grounds, spawnMirror } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { expectWhole, sizes } from './whole-files.ts';

describe.each(grounds())('a transfer in a process that stops ($name)', { timeout: 240_000 }, (kind) => {
  let scene: Scene;
  let workers: Awaited<ReturnType<typeof spawnMirror>>[] = [];
  let database: pg.Client;
  beforeAll(async () => {
    scene = await newScene({
      redis: kind.redis,
      s3: kind.s3,
      role: 'web',
      environment: { SHUTDOWN_GRACE: '3s', TRANSFER_STALL_TIMEOUT: '30s' },
    });
    database = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL });
    await database.connect();
  });
  afterEach(async () => {
    for (const worker of workers) await worker.kill('SIGKILL');
    workers = [];
  });
  afterAll(async () => {
    await database?.end();
    await scene?.close();
  });
  const work = async (bandwidth?: string) => {
    const environment = { ...scene.ground.environment, ...(bandwidth && { BANDWIDTH_LIMIT: bandwidth }) };
    const worker = await spawnMirror({ ...scene.ground, environment }, scene.library, 'worker');
    workers.push(worker);
    return worker;
  };
  const upload = async (version: string) =>
    Promise.all(
      Object.entries(sizes).map(async ([which, size]) => {
        const seed = `${which}: ${version}`;
        return { id: await scene.upload({ name: `${which}.bin`, content: { seed, size } }), seed, size };
      }),
    );
  /** A worker that is slow enough to be interrupted during both files. */
  const inTheMiddle = async (files: { id: string }[]) => {
    const worker = await work('1MiB/s');
    await scene.resync();
    for (const { id } of files) {
      await until('the transfer', async () => (await scene.admin.requests({ assetId: id, endpoint: 'media' })).length);
    }
    return worker;
  };

  test.each(['SIGTERM', 'SIGKILL'] as const)(
    'small and large files are mirrored completely when their process gets %s',
    async (signal) => {
      const files = await upload(signal);
      const first = await inTheMiddle(files);
      await first.kill(signal);
      await work();
      await expectWhole(scene, files);
    },
  );

  test('a process that wakes up after others took over its leases changes nothing', async () => {
    const files = await upload('first');
    const sleeper = await inTheMiddle(files);
    sleeper.child.kill('SIGSTOP');
    const replaced = files.map(({ id, size }, i) => ({ id, seed: `second ${i}`, size: size + 1 }));
    for (const { id, seed, size } of replaced) await scene.admin.changeAsset(id, { content: { seed, size } });
    await work();
    await scene.resync();
    await expectWhole(scene, replaced);
    sleeper.child.kill('SIGCONT');
    const ids = replaced.map(({ id }) => id);
    await until('the sleeper to give both up', () =>
      ids.every((id) =>
        sleeper
          .output()
          .split('\n')
          .some((line) => line.includes(id) && /returned to the queue|asset mirrored|will retry/.test(line)),
      ),
    );
    await expectWhole(scene, replaced);
    const { rows } = await database.query('SELECT 1 FROM assets WHERE id = ANY($1) AND upload IS NOT NULL', [ids]);
    expect(rows).toEqual([]);
  });
});
