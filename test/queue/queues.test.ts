import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { Queues } from '../../src/queue/queues.ts';
import { silent } from '../store/records.ts';
import { newDatabase } from '../support/database.ts';
import { freePort } from '../support/ports.ts';
import { newRedis, newRedisServer } from '../support/redis.ts';
import { until } from '../support/until.ts';

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];

describe.each(backends)('the oldest job on $name', ({ redis }) => {
  let database: Awaited<ReturnType<typeof newDatabase>>;
  let queues: Queues;
  beforeAll(async () => {
    database = await newDatabase();
    queues = new Queues({
      installation: 'i',
      databaseUrl: database.url,
      redisUrl: redis && (await newRedis(redis)),
      log: silent,
    });
  });
  afterAll(async () => {
    await queues?.close();
    await database?.drop();
  });
  const add = (ageMs: number) => queues.assets.add('mirror-asset', { assetId: 'a' }, { timestamp: Date.now() - ageMs });

  test('the oldest job is the one that has waited for the longest time', async () => {
    expect(await queues.oldest()).toEqual({ syncs: 0, assets: 0 });
    await add(30_000);
    await add(60_000);
    await add(10_000);
    // The queue is in the order in which jobs came, as they are added by the clock.
    expect((await queues.oldest()).assets).toBeGreaterThanOrEqual(30);
    await queues.addSyncs(['c']);
    const overdue = await until('the job of a sync to be overdue', async () => {
      const { syncs } = await queues.oldest();
      return syncs > 0.5 && syncs;
    });
    expect(overdue).toBeLessThan(60);

    const worker = queues.worker('assets', async () => 'done', { concurrency: 1 });
    void worker.run();
    await until('all that was due to be done', async () => (await queues.oldest()).assets === 0);
    await worker.close();
  });
});

test.runIf(inject('redis'))("two mirrors can share a Redis without seeing each other's jobs", async () => {
  const redisUrl = await newRedis(inject('redis')!);
  const [one, other] = ['one', 'other'].map(
    (installation) => new Queues({ installation, databaseUrl: '', redisUrl, log: silent }),
  ) as [Queues, Queues];
  await one.assets.add('mirror-asset', { assetId: 'a' });
  await one.addSyncs(['c']);
  const active = { waiting: 0, active: 0, delayed: 0 };
  expect(await one.counts()).toMatchObject({ assets: { ...active, waiting: 1 } });
  expect(await other.counts()).toMatchObject({ assets: active, syncs: active });
  await Promise.all([one.close(), other.close()]);
});

test('`ready` fails if PostgreSQL is away when the queues are opened', async () => {
  const databaseUrl = `postgres://user@127.0.0.1:${await freePort()}/database`;
  const queues = new Queues({ installation: 'i', databaseUrl, log: silent });
  await expect(queues.ready()).rejects.toThrow(/ECONNREFUSED/);
  await queues.close();
});

test.runIf(inject('redis'))('a Redis that refuses writes is reported, and its workers do not spin', async () => {
  const server = await newRedisServer();
  const client = new Redis(server.url);
  const queues = new Queues({ installation: 'i', databaseUrl: '', redisUrl: server.url, log: silent });
  try {
    await queues.check();
    const errors: unknown[] = [];
    const worker = queues.worker('assets', async () => 'done', { concurrency: 1 });
    worker.on('error', (error) => errors.push(error));
    void worker.run();
    // It waits for a job when Redis begins to refuse.
    await queues.assets.add('mirror-asset', { assetId: 'a' });
    await until('the job to be done', async () => (await queues.counts()).assets.completed === 1);
    await client.config('SET', 'min-replicas-to-write', '1');
    await expect(queues.check()).rejects.toThrow(/NOREPLICAS/);
    await until('the worker to fail twice', () => errors.length >= 2);
    expect(errors.length).toBeLessThan(10);
    await client.config('SET', 'min-replicas-to-write', '0');
    await queues.check();
    await worker.close();
  } finally {
    await queues.close();
    client.disconnect();
    await server.stop();
  }
});

test.runIf(inject('redis'))('offering syncs ends in time although Redis has stopped', { tags: 'slow' }, async () => {
  const server = await newRedisServer();
  const queues = new Queues({ installation: 'i', databaseUrl: '', redisUrl: server.url, log: silent });
  try {
    await queues.check();
    await server.stop();
    const began = performance.now();
    await queues.offerSyncs(['c']);
    expect(performance.now() - began).toBeLessThan(10_000);
  } finally {
    await queues.close();
    await server.stop();
  }
});

test.runIf(inject('redis'))(
  'a call continues on a new connection if the host of Redis has vanished silently',
  {
    tags: 'slow',
    timeout: 120_000,
  },
  async () => {
    const server = await newRedisServer();
    const sockets: Socket[] = [];
    const line = createServer((socket) => {
      const onwards = connect(Number(new URL(server.url).port), '127.0.0.1');
      sockets.push(socket, onwards);
      socket.on('error', () => {}).pipe(onwards);
      onwards.on('error', () => {}).pipe(socket);
    }).listen(0, '127.0.0.1');
    await once(line, 'listening');
    const redisUrl = `redis://127.0.0.1:${(line.address() as AddressInfo).port}`;
    const queues = new Queues({ installation: 'i', databaseUrl: '', redisUrl, log: silent });
    try {
      await queues.check();
      // Packets of these connections are lost from now on.
      for (const socket of sockets) socket.unpipe().pause();
      await queues.addSyncs(['c']);
      expect((await queues.counts()).syncs.waiting).toBe(1);
    } finally {
      await queues.close();
      for (const socket of sockets) socket.destroy();
      line.close();
      await server.stop();
    }
  },
);
