// @module-tag slow
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { defaultTimings } from '../src/floor/timings.ts';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { type Ground, newGround, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { newRedis } from './support/redis.ts';
import { startPostgres } from './support/services.ts';
import { newStage, type Stage } from './support/stage.ts';
import { until } from './support/until.ts';

const faketime = inject('faketime');
const redis = inject('redis');
const backends = [
  { name: 'queues in PostgreSQL', redis: undefined },
  ...(redis ? [{ name: 'queues in Redis', redis }] : []),
];

/** The clock of the mirror and of its PostgreSQL is wrong; the library's and Redis' are right. */
describe.skipIf(!faketime)('a clock that was ahead', { timeout: 300_000 }, () => {
  describe.each(backends)('$name', ({ redis }) => {
    const clockFile = join(tmpdir(), `asset-mirror-clock-${process.pid}-${Math.random()}`);
    const stops: (() => Promise<unknown>)[] = [];
    let ground: Ground;
    let library: Library;
    let admin: Admin;
    let mirror: Awaited<ReturnType<typeof spawnMirror>> | undefined;

    const setClock = (offset: string) => writeFile(clockFile, `${offset}\n`);
    const upload = async (name: string) =>
      (
        await admin.addAsset({
          companyId: 'acme',
          name,
          mimeType: 'application/octet-stream',
          assetType: 'documents',
          thumbnail: false,
          content: { text: 'hello' },
        })
      ).id;

    /** Connects while the clock is ahead by some hours, and checks that the database's clock is ahead, too. */
    const connectAhead = async (hours: number) => {
      const connectionId = await mirror!.connect();
      const { connectedAt } = await mirror!.api('GET', `/connections/${connectionId}`);
      expect(Date.parse(connectedAt)).toBeGreaterThan(Date.now() + (hours - 1) * 3600_000);
      return connectionId;
    };

    beforeEach(async () => {
      const clock = {
        LD_PRELOAD: faketime!,
        FAKETIME_TIMESTAMP_FILE: clockFile,
        FAKETIME_NO_CACHE: '1',
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      };
      await setClock('+0');
      ground = await newGround({
        port: await freePort(),
        environment: { ...clock, SYNC_INTERVAL: '5s', ...(redis && { REDIS_URL: await newRedis(redis) }) },
      });
      // One for this test: the other tests' has the machine's clock.
      ground.environment.DATABASE_URL = await startPostgres(ground.environment.DATA_DIR!, stops, clock);
      ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
      await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
    });
    afterEach(async () => {
      await mirror?.kill('SIGTERM');
      mirror = undefined;
      for (const stop of stops.splice(0)) await stop();
      await library.close();
      await ground.clear();
      await rm(clockFile, { force: true });
    });

    test('a clock that is set back by two hours while the mirror runs is logged, and syncs continue', async () => {
      await setClock('+2h');
      mirror = await spawnMirror(ground, library);
      await connectAhead(2);
      await mirror.assetIn(await upload('before'), 'mirrored');
      await setClock('+0');
      await mirror.assetIn(await upload('after'), 'mirrored');
      await mirror.assetIn(await upload('later'), 'mirrored');
      expect(mirror.output()).toContain('the clock was set back');
    });

    test('a clock that is set back by two days while the mirror is stopped keeps back no sync and no retry', async () => {
      await setClock('+2d');
      mirror = await spawnMirror(ground, library);
      const connectionId = await connectAhead(48);
      await admin.setFaults({ endpoint: 'media', status: 500 });
      const failing = await upload('failing');
      await until('an attempt that failed', async () => (await mirror!.asset(failing))?.attempts > 0);
      await mirror.kill('SIGKILL');
      await admin.clearFaults();
      await setClock('+0');
      mirror = await spawnMirror(ground, library);
      await mirror.api('POST', `/connections/${connectionId}/resync`, { mode: 'full' });
      await mirror.assetIn(failing, 'mirrored');
      await mirror.assetIn(await upload('after'), 'mirrored');
    });
  });
});

/** Only the worker's clock is wrong: database, library and web process have the right one. */
describe.skipIf(!faketime).each([
  { clock: '3 minutes behind', offset: '-180' },
  { clock: '10 minutes ahead of', offset: '+600' },
])("a worker whose clock is $clock the database's", ({ offset }) => {
  let stage: Stage;
  let worker: Awaited<ReturnType<typeof spawnMirror>>;
  let company: Awaited<ReturnType<Stage['company']>>;

  beforeAll(async () => {
    stage = await newStage({ timings: defaultTimings });
    company = await stage.company();
    const environment = {
      ...stage.ground.environment,
      LD_PRELOAD: faketime!,
      FAKETIME: offset,
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    };
    worker = await spawnMirror({ ...stage.ground, environment }, stage.library, 'worker');
  });
  afterAll(async () => {
    await worker?.kill('SIGTERM');
    await stage?.close();
  });
  const added = async (asset = {}) => {
    const [id] = await stage.upload(company.companyId, 1, asset);
    await stage.sync(company.connectionId);
    return id!;
  };
  /** The seconds until this time, by the database's clock. */
  const secondsUntil = async (column: string, table: string, id: string) => {
    const text = `SELECT extract(epoch FROM ${column} - now())::float8 AS seconds FROM ${table} WHERE id = $1`;
    return (await stage.query<{ seconds: number | null }>(text, [id]))[0]!.seconds;
  };

  test('a worker with a wrong clock retries a failing download after 1 s, then after 2 s', async () => {
    await stage.admin.setFaults({ endpoint: 'media', status: 500 });
    const id = await added();
    /** The start of each attempt, and the wait after it, by the database's clock. */
    const attempts = async () =>
      stage.query<{ began: number; wait: number }>(
        `SELECT extract(epoch FROM at)::float8 AS began,
           extract(epoch FROM (data->>'nextAt')::timestamptz - at)::float8 - (data->>'ms')::float8 / 1000 AS wait
         FROM asset_history WHERE asset_id = $1 AND kind = 'attempt' ORDER BY id`,
        [id],
      );
    await until('the second attempt to fail', async () => (await attempts()).length >= 2);
    const [first, second] = await attempts();
    expect(first!.wait).toBeGreaterThan(0.99);
    expect(first!.wait).toBeLessThan(1.3);
    expect(second!.began - first!.began).toBeGreaterThan(0.99);
    expect(second!.wait).toBeGreaterThan(1.99);
    expect(second!.wait).toBeLessThan(2.6);
    await stage.admin.clearFaults();
    await stage.mirror.assetIn(id, 'mirrored');
  });

  test('a worker with a wrong clock waits about 2 minutes after 429 with Retry-After: 120, and continues', async () => {
    await stage.admin.setFaults({ endpoint: 'asset', retryAfter: 120 });
    const id = await added();
    await until(
      'the pause',
      async () => (await secondsUntil('delayed_until', 'connections', company.connectionId)) !== null,
    );
    await until('the asset to be handed back', async () => (await stage.store.assets.get(id))?.queuedAt === null);
    for (const [column, table, of] of [
      ['delayed_until', 'connections', company.connectionId],
      ['next_at', 'assets', id],
    ] as const) {
      const seconds = await secondsUntil(column, table, of);
      // Less what has passed since.
      expect(seconds).toBeGreaterThan(90);
      // With up to 10 s of jitter.
      expect(seconds).toBeLessThan(131);
    }
    await stage.admin.clearFaults();
    // As if the time were over.
    await stage.query(`UPDATE connections SET delayed_until = now() WHERE id = $1`, [company.connectionId]);
    await stage.query(`UPDATE assets SET next_at = now() WHERE id = $1`, [id]);
    await stage.mirror.assetIn(id, 'mirrored');
  });

  test('a worker with a wrong clock mirrors a video that was transcoding, and its transcript', async () => {
    const film = { name: 'clip.mp4', mimeType: 'video/mp4', assetType: 'videos' };
    const id = await added({ ...film, status: 'processing' });
    await stage.mirror.assetIn(id, 'processing');
    const transcript = { language: 'en', durationSec: 3, text: 'Hello', vtt: 'WEBVTT\n\n', words: null };
    await stage.admin.changeAsset(id, { status: 'ready', hasTranscript: true, transcript });
    await stage.mirror.assetIn(id, 'mirrored');
    await until('its transcript', async () => (await stage.mirror.asset(id)).transcript === 'mirrored');
  });
});

describe.skipIf(!faketime)('a process without a worker', () => {
  test('a process without a worker logs that its clock was set', async () => {
    const clockFile = join(tmpdir(), `asset-mirror-clock-${process.pid}-${Math.random()}`);
    await writeFile(clockFile, '+0\n');
    const stage = await newStage();
    const port = await freePort();
    const environment = {
      ...stage.ground.environment,
      PORT: String(port),
      LD_PRELOAD: faketime!,
      FAKETIME_TIMESTAMP_FILE: clockFile,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    };
    const web = await spawnMirror({ ...stage.ground, port, environment }, stage.library, 'web');
    try {
      await writeFile(clockFile, '+2h\n');
      await until('the step to be logged', () => web.output().includes('the clock was set forward'));
    } finally {
      await web.kill('SIGTERM');
      await stage.close();
      await rm(clockFile, { force: true });
    }
  });
});
