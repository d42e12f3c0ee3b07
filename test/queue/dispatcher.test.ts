import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import type { Reason } from '../../src/floor/reasons.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { spawnMirror, startMirror } from '../support/mirror.ts';
import { mirroredAlone as found } from '../support/mirrored.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

describe('the dispatcher', () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await newStage();
  });
  afterAll(async () => {
    await stage?.close();
  });

  /** Connections with these numbers of pending assets, by connection newest first. */
  async function pending(...counts: number[]): Promise<string[][]> {
    const all: string[][] = [];
    for (const count of counts) {
      const { companyId, connectionId } = await stage.company();
      const ids = await stage.upload(companyId, count);
      await stage.sync(connectionId);
      all.push(ids.reverse());
    }
    return all;
  }
  const dispatch = async () => (await stage.store.assets.dispatch({ perConnection: 4 }))?.map(({ id }) => id) ?? [];
  /** A worker's whole lease. */
  async function finish(id: string): Promise<void> {
    const asset = (await stage.store.assets.take(id, 60_000))!;
    expect(await stage.store.assets.unavailable(leaseOf(asset), { code: 'no_file', status: null })).toBe(true);
  }

  test('the dispatcher gives slots to the newest assets first, in turn per connection and up to its limit', {
    tags: 'slow',
  }, async () => {
    const [a, b, c] = (await pending(300, 120, 2)) as [string[], string[], string[]];
    const first = await dispatch();
    expect(first).toHaveLength(10);
    const turns = [first.slice(0, 3), first.slice(3, 6), first.slice(6, 8), first.slice(8, 10)];
    for (const [turn, ids] of turns.entries()) {
      expect(ids.sort()).toEqual([a[turn], b[turn], c[turn]].filter((id) => id !== undefined).sort());
    }
    expect(await dispatch()).toEqual([]);

    await finish(a[1]!);
    await finish(a[3]!);
    await finish(b[0]!);
    expect((await dispatch()).sort()).toEqual([a[4], a[5], b[4]].sort());
    expect(await dispatch()).toEqual([]);

    // If the connection of the free slot is known, the others are not checked.
    await finish(a[2]!);
    await finish(b[1]!);
    const { connectionId } = (await stage.store.assets.get(b[1]!))!;
    const only = (await stage.store.assets.dispatch({ perConnection: 4, only: [connectionId!] }))!;
    expect(only.map(({ id }) => id)).toEqual([b[5]]);
    expect(await dispatch()).toEqual([a[6]]);

    // A new asset comes before older ones, as soon as a slot is free.
    const [owner] = [(await stage.store.assets.get(a[0]!))!];
    const [newest] = await stage.upload(owner.companyId, 1, { uploadDate: Date.now() });
    await stage.sync(owner.connectionId!);
    expect(await dispatch()).toEqual([]);
    await finish(a[0]!);
    expect(await dispatch()).toEqual([newest]);
  });

  test('the dispatcher gives a quarter of the slots, and all free ones, to follow-up checks, longest due first', async () => {
    const [ids] = (await pending(16)) as [string[]];
    const [media, looks] = [ids.slice(0, 6), ids.slice(6)];
    // Eight are due, each an hour longer than the next. Two are not due before the other tests have ended.
    await stage.query(
      `UPDATE assets SET state = 'mirrored', mirrored_at = now(),
         next_at = now() + (array_position($1::text[], id) - 8.5) * interval '1 hour' WHERE id = ANY($1)`,
      [looks],
    );
    expect((await dispatch()).sort()).toEqual([looks[0], ...media.slice(0, 3)].sort());
    await finish(media[0]!);
    expect(await dispatch()).toEqual([media[3]]);
    await finish(looks[0]!);
    expect(await dispatch()).toEqual([looks[1]]);
    for (const id of media.slice(1, 4)) await finish(id);
    const { connectionId } = (await stage.store.assets.get(ids[0]!))!;
    const only = (await stage.store.assets.dispatch({ perConnection: 4, only: [connectionId!] }))!;
    expect(only.map(({ id }) => id)).toEqual([media[4], media[5], looks[2]]);
    for (const id of media.slice(4)) await finish(id);
    expect(await dispatch()).toEqual([looks[3], looks[4]]);
    for (const id of looks.slice(1, 5)) await finish(id);
    expect(await dispatch()).toEqual(looks.slice(5, 8));
    for (const id of looks.slice(5, 8)) await finish(id);
    expect(await dispatch()).toEqual([]);
  });

  test('the dispatcher gives a single slot to a follow-up check one time in four, at random', {
    tags: 'slow',
  }, async () => {
    // In however many companies.
    const companies = [];
    for (let i = 0; i < 8; i++) companies.push(await stage.company());
    const { connectionId } = await stage.person(...companies.map(({ companyId }) => companyId));
    const ids: string[] = [];
    const looks: string[] = [];
    for (const { companyId, connectionId } of companies) {
      await stage.store.connections.end(connectionId, 'as a test');
      const uploaded = await stage.upload(companyId, 20);
      looks.push(...uploaded.splice(0, 10));
      ids.push(...uploaded);
    }
    await stage.sync(connectionId);
    await stage.query(
      `UPDATE assets SET state = 'mirrored', mirrored_at = now(), next_at = now() - interval '1 minute' WHERE id = ANY($1)`,
      [looks],
    );
    const given: string[] = [];
    for (let lease = 0; lease < 80; lease++) {
      const due = (await stage.store.assets.dispatch({ perConnection: 1 }))!;
      expect(due).toHaveLength(1);
      await finish(due[0]!.id);
      given.push(due[0]!.id);
    }
    // The chance of none, or of more than 60 of 80, is less than 1e-9.
    const media = given.filter((id) => ids.includes(id));
    expect(media.length).toBeGreaterThanOrEqual(20);
    expect(media.length).toBeLessThan(80);
    await stage.store.connections.end(connectionId, 'as a test');
  });

  test('the dispatcher gives each slot once, in any number of processes', async () => {
    const [ids] = await pending(50);
    const given = (await Promise.all(Array.from({ length: 8 }, dispatch))).flat();
    expect(given).toEqual(ids!.slice(0, 4));
  });

  test('the dispatcher counts the slots of a connection over all its companies', async () => {
    const [a, b] = [await stage.company(), await stage.company()];
    const { connectionId } = await stage.person(a.companyId, b.companyId);
    const old = await stage.upload(a.companyId, 10);
    const [newest] = await stage.upload(b.companyId, 1, { uploadDate: Date.now() });
    await stage.store.connections.end(a.connectionId, 'as a test');
    await stage.store.connections.end(b.connectionId, 'as a test');
    await stage.sync(connectionId);
    expect(await dispatch()).toEqual([newest, ...old.slice(7).reverse()]);
  });

  test('the dispatcher frees the slots of an ended connection when its jobs leave the queue', async () => {
    const [ids] = await pending(6);
    const [first] = await dispatch();
    const { connectionId } = (await stage.store.assets.get(first!))!;
    await stage.store.connections.delay(connectionId!, 60_000, { code: 'error', text: 'asked to wait' });
    expect(await stage.store.assets.take(first!, 60_000)).toBeUndefined();
    expect(await stage.store.assets.get(first!)).toMatchObject({ queuedAt: null, state: 'pending' });
    expect(await stage.store.assets.take(ids![5]!, 60_000)).toBeUndefined();
  });

  test('the dispatcher enqueues an asset again only when its job counts as lost', async () => {
    await pending(6);
    const given = await dispatch();
    const held = (await stage.store.assets.take(given[0]!, 60_000))!;
    const lost = async () => (await stage.store.assets.overdue(60_000)).map((asset) => asset.id);
    expect((await lost()).filter((id) => given.includes(id))).toEqual([]);
    await age(stage);
    expect((await lost()).filter((id) => given.includes(id)).sort()).toEqual(given.slice(1).sort());
    expect((await lost()).filter((id) => given.includes(id))).toEqual([]);
    expect(held.id).toBe(given[0]);
  });

  test('the dispatcher enqueues the asset of a killed worker again, once, after its lease', async () => {
    const [ids] = await pending(1);
    const [id] = await dispatch();
    expect([id]).toEqual(ids);
    const dead = (await stage.store.assets.take(id!, 1))!;
    const lost = async () => (await stage.store.assets.overdue(60_000)).filter((asset) => asset.id === id);
    const again = await until('its lease to be over', async () => (await lost())[0]);
    // Another job than the one that the dead worker still has.
    expect(again.lease).toBe(dead.lease);
    expect(dead.lease).toBeGreaterThan(0);
    expect(await lost()).toEqual([]);
    expect(await stage.store.assets.startTransfer(leaseOf(dead))).toBe(true);
    const next = (await stage.store.assets.take(id!, 60_000))!;
    expect(await stage.store.assets.startTransfer(leaseOf(dead))).toBe(false);
    expect(await lost()).toEqual([]);
    expect(next.lease).toBe(dead.lease + 1);
  });

  test('two workers never lease the same asset, and a worker whose lease is over writes nothing', async () => {
    await pending(1);
    const [id] = await dispatch();
    const taken = await Promise.all(Array.from({ length: 10 }, () => stage.store.assets.take(id!, 0)));
    const first = taken.find((asset) => asset !== undefined)!;
    const second = await until('the lease to run out', () => stage.store.assets.take(id!, 60_000));
    expect(second.lease).toBeGreaterThan(first.lease);
    expect(await stage.store.assets.take(id!, 60_000)).toBeUndefined();

    const [late, own] = [first, second].map(leaseOf);
    const { assets } = stage.store;
    const media = { key: 'k', bytes: 1, variant: 'original', checksums: {}, etag: null, version: 'v' } as const;
    expect(await assets.startTransfer(late!)).toBe(false);
    expect(await assets.saveMedia(late!, media, { isVerified: true })).toBe(false);
    const reason: Reason = { code: 'error', text: 'late' };
    expect(await assets.failed(late!, reason)).toBe(false);
    expect(await assets.again(late!, 0, { spent: true, reason })).toBe(false);
    expect(await assets.processing(late!, 0)).toBe(false);
    expect(await assets.giveUpSidecars(late!, reason)).toBe(false);
    expect(await assets.renew([late!, own!], 60_000)).toEqual(new Set([id]));
    expect(await assets.get(id!)).toMatchObject({ state: 'transferring', attempts: 0, reason: null, media: null });
    expect(await assets.startTransfer(own!)).toBe(true);
  });
});

test('a lease that ends frees one slot, for the newest due asset', { tags: 'slow' }, async () => {
  const stage = await newStage();
  try {
    const { companyId, connectionId } = await stage.company();
    const ids = (await stage.upload(companyId, 8)).reverse();
    await stage.sync(connectionId);
    const dispatch = async () =>
      (await stage.store.assets.dispatch({ perConnection: 4, only: [connectionId] }))!.map(({ id }) => id);
    expect(await dispatch()).toEqual(ids.slice(0, 4));
    const held = await Promise.all(ids.slice(0, 4).map((id) => stage.store.assets.take(id, 60_000)));
    const [first, second] = held.map((asset) => leaseOf(asset!));
    expect(await dispatch()).toEqual([]);
    expect(await stage.store.assets.mirrored(first!, found)).toBe(true);
    expect(await dispatch()).toEqual([ids[4]]);
    // A second write of a lease is refused, and so is one of a connection that has ended.
    expect(await stage.store.assets.mirrored(first!, found)).toBe(false);
    await stage.store.connections.end(connectionId, 'as a test');
    expect(await stage.store.assets.mirrored(second!, found)).toBe(false);
    expect(await dispatch()).toEqual([]);
  } finally {
    await stage.close();
  }
});

/** Makes all jobs on the queue a minute older. */
async function age(stage: Stage, by = "interval '1 minute'"): Promise<void> {
  await stage.query(`UPDATE assets SET queued_at = queued_at - ${by} WHERE queued_at IS NOT NULL`);
  await stage.query("UPDATE syncs SET requested_at = requested_at - interval '1 minute'");
}

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
