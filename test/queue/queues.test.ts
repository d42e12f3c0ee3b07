import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { Queues } from '../../src/queue/queues.ts';
import { silent } from '../store/records.ts';
import { newDatabase } from '../support/database.ts';
import { freePort } from '../support/ports.ts';
import { newRedis } from '../support/redis.ts';
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
  const add = (ageMs: number, more: object = {}) =>
    queues.assets.add('mirror-asset', { assetId: 'a' }, { timestamp: Date.now() - ageMs, ...more });

  test('the oldest job is the one that has been due for the longest time, delayed or waiting', async () => {
    expect(await queues.oldest()).toEqual({ syncs: 0, assets: 0 });
    // Put there long ago, and not due yet.
    await add(600_000, { delay: 3_600_000 });
    expect((await queues.oldest()).assets).toBe(0);
    await add(30_000);
    await add(60_000);
    await add(10_000);
    // The queue is in the order in which jobs came, as they are added by the clock.
    expect((await queues.oldest()).assets).toBeGreaterThanOrEqual(30);
    await queues.syncs.upsertJobScheduler('sync-c', { every: 1000 }, { name: 'sync', data: { connectionId: 'c' } });
    const overdue = await until('the scheduled job to be overdue', async () => {
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
  await one.syncs.upsertJobScheduler('sync-c', { every: 60_000 }, { name: 'sync', data: { connectionId: 'c' } });
  const active = { waiting: 0, active: 0, delayed: 0 };
  expect(await one.counts()).toMatchObject({ assets: { ...active, waiting: 1 } });
  expect(await other.counts()).toMatchObject({ assets: active, syncs: active });
  expect(await other.syncs.getJobSchedulersCount()).toBe(0);
  await Promise.all([one.close(), other.close()]);
});

test('`ready` fails if PostgreSQL is away when the queues are opened', async () => {
  const databaseUrl = `postgres://user@127.0.0.1:${await freePort()}/database`;
  const queues = new Queues({ installation: 'i', databaseUrl, log: silent });
  await expect(queues.ready()).rejects.toThrow(/ECONNREFUSED/);
  await queues.close();
});
