// @module-tag slow
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytesOf, chunksOf } from '../src/library/index.ts';
import { type Admin, type Library, startTestLibrary } from './support/library.ts';
import { contentOf, type Ground, grounds, keysOf, newGround, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

describe.each(grounds())('a process that ends ($name)', { timeout: 300_000 }, (kind) => {
  let library: Library;
  let admin: Admin;
  let ground: Ground;
  let mirrors: Awaited<ReturnType<typeof spawnMirror>>[];
  const size = 3_000_000;

  beforeEach(async () => {
    const port = await freePort();
    ground = await newGround({
      port,
      redis: kind.redis,
      s3: kind.s3,
      environment: { TRANSFER_STALL_TIMEOUT: '30s', SHUTDOWN_GRACE: '4s' },
    });
    ({ library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] }));
    await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
    mirrors = [];
  });
  afterEach(async () => {
    for (const mirror of mirrors) await mirror.kill('SIGKILL');
    await library?.close();
    await ground?.clear();
  });
  const start = async (role?: 'web' | 'worker' | 'all') => {
    const mirror = await spawnMirror(ground, library, role);
    mirrors.push(mirror);
    return mirror;
  };
  const upload = async (seed: string) =>
    (
      await admin.addAsset({
        companyId: 'acme',
        name: 'big.bin',
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        uploadDate: Date.UTC(2024, 0, 1),
        thumbnail: false,
        content: { seed, size },
      })
    ).id;
  const hold = (assetId: string) => admin.addFault({ endpoint: 'media', assetId, stallAfter: 1_000_000 });
  const whole = async (id: string, seed: string) =>
    expect(await contentOf(ground.storage, `acme/_/${id}/big.bin`)).toEqual(bytesOf(seed, 0, size));

  test('SIGTERM hands work back without spending an attempt, within the grace, and the process exits with 0', async () => {
    const id = await upload('term');
    await hold(id);
    const first = await start();
    await first.connect();
    await first.assetIn(id, 'transferring');
    const started = Date.now();
    expect(await first.kill('SIGTERM'), first.output()).toBe(0);
    // Without an abort of the transfer, the stop would take 30 s.
    expect(Date.now() - started).toBeLessThan(20_000);
    expect((await keysOf(ground.storage)).filter((key) => key.includes(id))).toEqual([]);

    await admin.clearFaults();
    const second = await start();
    expect(await second.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
    await whole(id, 'term');
  });

  test('a second signal ends the process at once', async () => {
    const id = await upload('twice');
    await hold(id);
    // The first signal alone does not end it during this test.
    ground.environment.SHUTDOWN_GRACE = '5m';
    const mirror = await start();
    await mirror.connect();
    await mirror.assetIn(id, 'transferring');
    mirror.child.kill('SIGTERM');
    await until('the stop to begin', async () => (await fetch(`${ground.publicUrl}/readyz`)).status === 503);
    // Without the second signal it would end with 0.
    expect(await mirror.kill('SIGTERM')).toBe(143);
  });

  test('a worker that is killed during a transfer loses no attempt, and another one continues', async () => {
    const ids = await Promise.all(['kill 1', 'kill 2', 'kill 3'].map(upload));
    for (const id of ids) await hold(id);
    const web = await start('web');
    const victim = await start('worker');
    await web.connect();
    for (const id of ids) await web.assetIn(id, 'transferring');
    await victim.kill('SIGKILL');
    await admin.clearFaults();
    await start('worker');
    for (const [index, id] of ids.entries()) {
      expect(await web.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
      await whole(id, `kill ${index + 1}`);
    }
    const keys = await keysOf(ground.storage);
    expect(keys).toHaveLength(ids.length * 2);
  });

  test.runIf(kind.redis)(
    'a queue that does not answer does not keep a process from ending within its grace',
    async () => {
      const port = await freePort();
      const server = spawn('redis-server', ['--port', String(port), '--save', '', '--maxmemory-policy', 'noeviction'], {
        stdio: 'ignore',
      });
      try {
        ground.environment.REDIS_URL = `redis://127.0.0.1:${port}`;
        const mirror = await start();
        await mirror.connect();
        await mirror.quiet();
        server.kill('SIGSTOP');
        const started = Date.now();
        expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
        // A client that waits for an answer waits forever.
        expect(Date.now() - started).toBeLessThan(20_000);
      } finally {
        server.kill('SIGKILL');
      }
    },
  );

  test.runIf(kind.redis)('a queue that is emptied during work is filled again from the records', async () => {
    const ids = await Promise.all(Array.from({ length: 12 }, (_, n) => upload(`flush ${n}`)));
    await admin.addFault({ endpoint: 'media', latency: 500 });
    const mirror = await start();
    await mirror.connect();
    await until('the first transfer', async () => (await admin.requests({ endpoint: 'media' })).length > 0);
    const redis = new Redis(ground.environment.REDIS_URL!);
    await redis.flushdb();
    redis.disconnect();
    for (const [n, id] of ids.entries()) {
      expect(await mirror.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [] });
      await whole(id, `flush ${n}`);
    }
  });
});

describe.each(grounds())('a large file in a process that ends ($name)', { timeout: 300_000 }, (kind) => {
  test.each(['SIGKILL', 'SIGTERM'] as const)(
    '%s during the transfer of a large file costs at most the parts in flight',
    async (signal) => {
      const part = 16 * 2 ** 20;
      const size = 12 * part + 1000;
      const port = await freePort();
      const ground = await newGround({
        port,
        redis: kind.redis,
        s3: kind.s3,
        environment: { SHUTDOWN_GRACE: '3s', BANDWIDTH_LIMIT: '32MiB/s' },
      });
      const { library, admin } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
      const mirrors: Awaited<ReturnType<typeof spawnMirror>>[] = [];
      const database = new pg.Client({ connectionString: ground.environment.DATABASE_URL });
      await database.connect();
      try {
        await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
        const { id } = await admin.addAsset({
          companyId: 'acme',
          name: 'big.bin',
          mimeType: 'application/octet-stream',
          assetType: 'documents',
          uploadDate: Date.UTC(2024, 0, 1),
          thumbnail: false,
          content: { seed: 'large', size },
        });
        // The first request is none of a part. Eight parts are served.
        await admin.addFault({ endpoint: 'media', skip: 9, stallAfter: 1_000_000 });
        const first = await spawnMirror(ground, library);
        mirrors.push(first);
        await first.connect();
        const stored = async () =>
          Number((await database.query('SELECT count(*) FROM upload_parts WHERE asset_id = $1', [id])).rows[0].count);
        await until('half of it to be stored', async () => (await stored()) >= 6);
        await first.kill(signal);
        // The server may still be at what the process has sent.
        await until('its statements to end', async () => {
          const { rows } = await database.query(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'asset-mirror%'",
          );
          return rows.length === 0;
        });
        const kept = await stored();
        await admin.clearFaults();
        await admin.clearRequests();

        const second = await spawnMirror(ground, library);
        mirrors.push(second);
        expect(await second.assetIn(id, 'mirrored')).toMatchObject({ failedAttempts: [], bytes: size });
        const again = await admin.requests({ assetId: id, endpoint: 'media' });
        // Each request is one part: those that were kept are not asked for again.
        expect(again).toHaveLength(13 - kept);
        expect(second.output()).toContain('transfer resumed');
        const hash = createHash('sha256');
        for await (const chunk of (await ground.storage.get(`acme/_/${id}/big.bin`))!) hash.update(chunk);
        const expected = createHash('sha256');
        for (const chunk of chunksOf('large', 0, size)) expected.update(chunk);
        expect(hash.digest('hex')).toBe(expected.digest('hex'));
        expect(await stored()).toBe(0);
        expect(await ground.leftovers()).toEqual([]);
      } finally {
        await database.end();
        for (const mirror of mirrors) await mirror.kill('SIGKILL');
        await library.close();
        await ground.clear();
      }
    },
  );
});

test('a Redis that never answers does not delay a stop', async () => {
  const port = await freePort();
  const ground = await newGround({
    port,
    environment: { REDIS_URL: `redis://127.0.0.1:${await freePort()}`, SHUTDOWN_GRACE: '40s' },
  });
  const { library } = await startTestLibrary({ redirectUris: [`${ground.publicUrl}/oauth/callback`] });
  const mirror = await spawnMirror(ground, library);
  try {
    const started = Date.now();
    expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
    expect(Date.now() - started).toBeLessThan(20_000);
  } finally {
    await mirror.kill('SIGKILL');
    await library.close();
    await ground.clear();
  }
});
