// @module-tag slow
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { spawnMirror } from '../support/mirror.ts';
import { newRedisServer } from '../support/redis.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** All work must continue within a minute; the test machine may be slow. */
const soon = 120_000;

describe.skipIf(!inject('redis'))('queues that are lost during work', { timeout: 300_000 }, () => {
  let redis: Awaited<ReturnType<typeof newRedisServer>>;
  let scene: Scene;
  beforeEach(async () => {
    redis = await newRedisServer();
    scene = await newScene({ environment: { REDIS_URL: redis.url, TRANSFER_STALL_TIMEOUT: '2m' } });
  });
  afterEach(async () => {
    await scene?.close();
    await redis.stop();
  });

  const upload = async (count: number) => {
    for (let i = 0; i < count; i++) await scene.upload({ uploadDate: Date.UTC(2024, 1, 29) + i * 1000 });
  };
  const state = async () => (await scene.mirror.store.counts.totals()).map(({ state, count }) => ({ state, count }));
  const runs = async () => scene.mirror.store.syncs.countOpen();

  /** A running sync, a waiting one, and files in transfer. */
  async function inTheMiddle(): Promise<string[]> {
    await upload(12);
    // Longer than the preparation takes; it ends by itself.
    await scene.admin.addFault({ endpoint: 'media', latency: 20_000, times: 4 });
    const first = await scene.resync();
    await until('files to be on their way', async () =>
      (await scene.mirror.store.counts.totals()).some((row) => row.state === 'transferring'),
    );
    await until('the first run to end', async () => (await scene.mirror.store.syncs.get(first))?.status === 'done');
    await upload(3);
    await scene.admin.addFault({ endpoint: 'assets', latency: 20_000, times: 1 });
    const running = await scene.resync();
    await until('a run', async () => (await runs()).running === 1);
    const waiting = await scene.resync();
    expect(waiting).not.toBe(running);
    expect(await runs()).toEqual({ running: 1, waiting: 1 });
    return [running, waiting];
  }

  async function everythingIsDone(ids: string[], count: number): Promise<void> {
    await until(
      'all to be mirrored',
      async () => (await state()).every((row) => row.state === 'mirrored' && row.count === count),
      soon,
    );
    for (const id of ids) {
      await until('each run to be done', async () => (await scene.mirror.store.syncs.get(id))?.status === 'done', soon);
    }
    // New assets are found and mirrored.
    await upload(2);
    await scene.resync({ mode: 'full' });
    await until(
      'what is new',
      async () => (await state()).every((row) => row.state === 'mirrored' && row.count === count + 2),
      soon,
    );
  }

  test('after FLUSHALL, running and waiting work continues', async () => {
    const ids = await inTheMiddle();
    await redis.empty();
    await everythingIsDone(ids, 15);
  });

  test('all work continues after Redis dies and comes back empty', async () => {
    const ids = await inTheMiddle();
    await redis.replace();
    await everythingIsDone(ids, 15);
  });

  test('all work continues after a change from Redis to PostgreSQL and back, with a process killed each time', async () => {
    const { ground, library, admin } = scene;
    await scene.mirror.stop();
    await upload(40);
    const elsewhere = await newRedisServer();
    const places = [redis.url, undefined, redis.url, elsewhere.url];
    try {
      let mirrored = 0;
      for (const [round, place] of places.entries()) {
        if (place) ground.environment.REDIS_URL = place;
        else delete ground.environment.REDIS_URL;
        await admin.setFaults({ endpoint: 'media', skip: 4, latency: 50_000 });
        const process = await spawnMirror(ground, library);
        try {
          if (round === 0) await process.api('POST', `/connections/${scene.connectionId}/resync`, { mode: 'full' });
          const { byState } = await until(
            `more to be mirrored, and some on their way (round ${round})`,
            async () => {
              const { assets } = await process.api('GET', '/status');
              return assets.byState.mirrored > mirrored && assets.byState.transferring > 0 && assets;
            },
            soon,
          );
          mirrored = byState.mirrored;
        } finally {
          await process.kill('SIGKILL');
        }
      }
      await admin.clearFaults();
      await scene.restart();
      await everythingIsDone([], 40);
    } finally {
      await elsewhere.stop();
    }
  });
});
