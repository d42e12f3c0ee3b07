import { Redis } from 'ioredis';
import { describe, expect, inject, test } from 'vitest';
import { spawnMirror, startMirror } from '../support/mirror.ts';
import { connectAs, newStage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { age } from './age.ts';

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];

describe.each(backends)('queues in $name', ({ redis }) => {
  test('an asset of a second connection does not wait behind hundreds of the first', { tags: 'slow' }, async () => {
    const stage = await newStage({ redis });
    const { companyId } = await stage.company();
    await stage.upload(companyId, 500);
    // The library sends a few files of the first, and then none.
    await stage.admin.addFault({ endpoint: 'media', companyId, skip: 20, latency: 60_000 });
    const worker = await startMirror(stage.ground, stage.library, 'worker');
    try {
      await until('the first to be listed and at work', async () => {
        const assets = await stage.assets(companyId);
        return assets.length === 500 && assets.some((asset) => asset.mirroredAt);
      });
      const second = await stage.company();
      const [id] = await stage.upload(second.companyId, 1, { uploadDate: 0 });
      await stage.mirror.api('POST', `/connections/${second.connectionId}/resync`, { mode: 'full' });
      await until('the other one to be mirrored', async () => (await stage.store.assets.get(id!))?.mirroredAt);
      const left = (await stage.assets(companyId)).filter((asset) => asset.state !== 'mirrored');
      expect(left.length).toBeGreaterThan(100);
    } finally {
      await worker.stop();
      await stage.close();
    }
  });

  test('each asset has its own job, and a stopping worker hands all of them back', { tags: 'slow' }, async () => {
    const stage = await newStage({ redis, environment: { CONNECTION_CONCURRENCY: '16', SHUTDOWN_GRACE: '20s' } });
    const { companyId } = await stage.company();
    await stage.upload(companyId, 200);
    // The last 160 take 15 seconds.
    await stage.admin.addFault({ endpoint: 'media', skip: 40, latency: 1500 });
    const worker = await spawnMirror(stage.ground, stage.library, 'worker');
    try {
      const mirrored = async () => (await stage.assets(companyId)).filter(({ state }) => state === 'mirrored');
      await until('some to be mirrored', async () => (await mirrored()).length > 30);
      expect(await worker.kill('SIGTERM'), worker.output()).toBe(0);
      const left = (await stage.assets(companyId)).filter(({ state }) => state !== 'mirrored');
      expect(left.length).toBeGreaterThan(0);
      expect(left.filter(({ state, leaseUntil }) => state !== 'pending' || leaseUntil !== null)).toEqual([]);

      await stage.admin.clearFaults();
      const other = await startMirror(stage.ground, stage.library, 'worker');
      try {
        await until('all to be mirrored', async () => (await mirrored()).length === 200);
      } finally {
        await other.stop();
      }
      const jobs = await stage.mirror.service.context.queues.assets.getJobs(['completed']);
      const mirroredBy = jobs.filter((job) => (job.returnvalue as { outcome: string }).outcome === 'mirrored');
      expect(new Set(mirroredBy.map((job) => job.data.assetId)).size).toBe(200);
      expect(worker.output()).not.toContain('"level":"error"');
    } finally {
      await worker.kill('SIGKILL');
      await stage.close();
    }
  });

  test('jobs that the queue has lost are recreated from the records', { tags: 'slow' }, async () => {
    const stage = await newStage({ redis });
    try {
      const { companyId, connectionId } = await stage.company();
      await stage.upload(companyId, 10);
      await stage.sync(connectionId);
      const later = await stage.company();
      await stage.upload(later.companyId, 2);
      const { queues } = stage.mirror.service.context;
      await queues.addAssets((await stage.store.assets.dispatch({ perConnection: 4 }))!);
      expect((await queues.counts()).assets.waiting).toBe(4);
      if (redis) {
        const client = new Redis(stage.ground.environment.REDIS_URL!);
        await client.flushdb();
        client.disconnect();
      } else {
        await queues.assets.obliterate({ force: true });
        await queues.syncs.obliterate({ force: true });
      }
      expect((await queues.counts()).assets.waiting).toBe(0);
      await age(stage);

      const worker = await startMirror(stage.ground, stage.library, 'worker');
      try {
        await until('all to be mirrored', async () => {
          const assets = [...(await stage.assets(companyId)), ...(await stage.assets(later.companyId))];
          return assets.length === 12 && assets.every((asset) => asset.state === 'mirrored');
        });
      } finally {
        await worker.stop();
      }
    } finally {
      await stage.close();
    }
  });

  test('waiting assets of an ended connection send no requests, and continue after a reconnect', {
    tags: 'slow',
  }, async () => {
    const stage = await newStage({ redis, environment: { CONNECTION_CONCURRENCY: '8' } });
    const { companyId, connectionId, userId } = await stage.company();
    await stage.upload(companyId, 150);
    // All of them take ten seconds.
    await stage.admin.addFault({ endpoint: 'media', latency: 500 });
    const worker = await startMirror(stage.ground, stage.library, 'worker');
    try {
      await until('work to begin', async () => (await stage.assets(companyId)).some((a) => a.mirroredAt));
      await stage.admin.endConnections(userId);
      await until(
        'it to be known',
        async () => (await stage.store.connections.get(connectionId))?.status === 'disconnected',
      );
      await stage.admin.clearFaults();
      await until('nobody to have any', async () =>
        (await stage.assets(companyId)).every((a) => a.leaseUntil === null && a.queuedAt === null),
      );
      const left = (await stage.assets(companyId)).filter((asset) => asset.state !== 'mirrored');
      expect(left.length).toBeGreaterThan(0);
      expect(left.every((asset) => asset.state === 'pending' && asset.attempts === 0)).toBe(true);

      await connectAs(stage.mirror, userId);
      await until('the rest', async () => (await stage.assets(companyId)).every((a) => a.state === 'mirrored'));
    } finally {
      await worker.stop();
      await stage.close();
    }
  });
});
