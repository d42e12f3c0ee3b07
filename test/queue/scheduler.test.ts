// @module-tag slow
import { describe, expect, inject, test, vi } from 'vitest';
import { startMirror } from '../support/mirror.ts';
import { byOperator } from '../support/reasons.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];
const hour = 3_600_000;

/** Runs it with this time as now. */
async function atTime(now: number, work: () => Promise<void>): Promise<void> {
  vi.useFakeTimers({ toFake: ['Date'], now });
  await work().finally(() => vi.useRealTimers());
}

describe.each(backends)('schedules on $name', ({ redis }) => {
  async function staged(
    work: (stage: Stage) => Promise<void>,
    environment: Record<string, string> = {},
  ): Promise<void> {
    const stage = await newStage({ redis, environment: { SYNC_INTERVAL: '1h', ...environment } });
    try {
      await work(stage);
    } finally {
      await stage.close();
    }
  }
  const schedulers = (stage: Stage) => stage.mirror.service.context.queues.syncs.getJobSchedulers(0, -1, true);
  const keys = async (stage: Stage) => (await schedulers(stage)).map((scheduler) => scheduler.key).sort();
  const pairs = (...ids: string[]) => ids.flatMap((id) => [`full-${id}`, `sync-${id}`]).sort();

  test('each connection has two schedulers, at its own offset in the interval, as the API shows', () =>
    staged(async (stage) => {
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) ids.push((await stage.company()).connectionId);
      expect(await keys(stage)).toEqual(pairs(...ids));
      const began = Date.now();
      const { connections } = await stage.mirror.api('GET', '/connections');
      const all = await schedulers(stage);
      const places = new Set<number>();
      for (const id of ids) {
        const incremental = all.find((scheduler) => scheduler.key === `sync-${id}`)!;
        const full = all.find((scheduler) => scheduler.key === `full-${id}`)!;
        expect([Number(incremental.every), Number(full.every)]).toEqual([hour, 24 * hour]);
        const next = Date.parse(connections.find((c: { id: string }) => c.id === id).nextSyncAt);
        // The one after it, if that time has come meanwhile.
        expect([incremental.next, incremental.next! + hour]).toContain(next);
        expect(next).toBeGreaterThanOrEqual(began);
        expect(next).toBeLessThanOrEqual(Date.now() + hour);
        expect(full.next! - Date.now()).toBeLessThanOrEqual(24 * hour);
        places.add(next % hour);
      }
      expect(places.size).toBe(5);
    }));

  test('incremental and full syncs run by their schedules', () =>
    staged(
      async (stage) => {
        const { companyId, connectionId } = await stage.company();
        await stage.run(connectionId);
        const worker = await startMirror(stage.ground, stage.library, 'worker');
        try {
          const ids = await stage.upload(companyId);
          await until('the upload to be found', async () => (await stage.ids(companyId)).length === 1);
          // Far behind the high-water mark: only a full sync sees it.
          ids.push(...(await stage.upload(companyId, 1, { uploadDate: 0 })));
          await until('the old one to be found', async () => (await stage.ids(companyId)).length === 2);
          expect(await stage.ids(companyId)).toEqual(ids.sort());
        } finally {
          await worker.stop();
        }
      },
      { SYNC_INTERVAL: '1s', RECONCILE_INTERVAL: '4s' },
    ));

  test('a sync with news makes the next ones come sooner, and the API says why', () =>
    staged(
      async (stage) => {
        const { companyId, connectionId } = await stage.company();
        const every = async () => {
          const scheduler = (await schedulers(stage)).find(({ key }) => key === `sync-${connectionId}`)!;
          const { polling, nextSyncAt } = await stage.mirror.api('GET', `/connections/${connectionId}`);
          expect(polling.interval).toBe(Number(scheduler.every));
          // The one after it, if that time has come meanwhile.
          expect([scheduler.next, scheduler.next! + polling.interval]).toContain(Date.parse(nextSyncAt));
          return [polling.interval, polling.reason];
        };
        await stage.sync(connectionId);
        expect(await every()).toEqual([hour, 'idle']);
        await stage.upload(companyId);
        await stage.sync(connectionId);
        expect(await every()).toEqual([60_000, 'active']);
        await stage.query("UPDATE connections SET news_at = now() - interval '5 min'");
        await stage.mirror.service.context.schedule.align();
        expect(await every()).toEqual([120_000, 'active']);
        await stage.query("UPDATE connections SET news_at = now() - interval '1 h'");
        await stage.mirror.service.context.schedule.align();
        expect(await every()).toEqual([hour, 'idle']);
      },
      { SYNC_INTERVAL_ACTIVE: '1m' },
    ));

  test('schedulers are corrected when a worker starts, after a crash or a changed setting', () =>
    staged(async (stage) => {
      const [a, b] = [await stage.company(), await stage.company()];
      const { syncs } = stage.mirror.service.context.queues;
      await syncs.removeJobScheduler(`full-${a.connectionId}`);
      await syncs.removeJobScheduler(`sync-${b.connectionId}`);
      await syncs.upsertJobScheduler('sync-of-nobody', { every: hour }, { name: 'sync' });
      const worker = await startMirror(
        { ...stage.ground, environment: { ...stage.ground.environment, SYNC_INTERVAL: '30m' } },
        stage.library,
        'worker',
      );
      try {
        await until('the schedules to be right', async () => {
          const all = await schedulers(stage);
          const every = (id: string) => Number(all.find((scheduler) => scheduler.key === id)?.every);
          return (
            all.length === 4 &&
            [a, b].every(
              (c) => every(`sync-${c.connectionId}`) === hour / 2 && every(`full-${c.connectionId}`) === 24 * hour,
            )
          );
        });
        const next = (await schedulers(stage)).find((s) => s.key === `sync-${a.connectionId}`)!.next!;
        expect(next - Date.now()).toBeLessThanOrEqual(hour / 2);
      } finally {
        await worker.stop();
      }
    }));

  test('a scheduler that was made while the clock was ahead is replaced', () =>
    staged(async (stage) => {
      const { connectionId } = await stage.company();
      const { queues, schedule } = stage.mirror.service.context;
      const key = `sync-${connectionId}`;
      await queues.syncs.removeJobScheduler(key);
      await atTime(Date.now() + 48 * hour, () => schedule.alignOne(connectionId));
      expect((await queues.syncs.getJobScheduler(key))!.next).toBeGreaterThan(Date.now() + 40 * hour);
      await schedule.align();
      const { next, every } = (await queues.syncs.getJobScheduler(key))!;
      expect(next! - Date.now()).toBeGreaterThan(-1000);
      expect(next! - Date.now()).toBeLessThanOrEqual(hour);
      expect(Number(every)).toBe(hour);
      expect(await queues.syncs.getJob(`repeat:${key}:${next}`)).toBeDefined();
    }));

  test('a scheduler that stopped because the id of its next job was taken is replaced', () =>
    staged(async (stage) => {
      const { connectionId } = await stage.company();
      const { queues, schedule } = stage.mirror.service.context;
      const key = `sync-${connectionId}`;
      await queues.syncs.removeJobScheduler(key);
      await atTime(Date.now() - 3 * hour, () => schedule.alignOne(connectionId));
      const { next: missed } = (await queues.syncs.getJobScheduler(key))!;
      const slot = schedule.nextSync(connectionId, hour).getTime();
      const inTheWay = redis || slot % hour <= Date.now() % hour ? slot : slot + hour;
      await queues.syncs.add('sync', { connectionId }, { jobId: `repeat:${key}:${inTheWay}`, delay: 24 * hour });
      await schedule.align();
      expect((await queues.syncs.getJobScheduler(key))!.next).toBe(missed);

      const worker = queues.worker('syncs', async () => 'done', { concurrency: 1 });
      void worker.run();
      await until('the run that was missed', async () => !(await queues.syncs.getJob(`repeat:${key}:${missed}`)));
      await worker.close();
      expect((await queues.syncs.getJobScheduler(key))!.next).toBe(missed);
      await schedule.align();
      const { next } = (await queues.syncs.getJobScheduler(key))!;
      expect(next).toBeGreaterThan(Date.now());
      expect(await queues.syncs.getJob(`repeat:${key}:${next}`)).toBeDefined();
    }));

  test('a connection that ends loses its schedulers at once, and gets them back with a reconnect', () =>
    staged(async (stage) => {
      const worker = await startMirror(stage.ground, stage.library, 'worker');
      try {
        const [a, b] = [await stage.company(), await stage.company()];
        // The worker compares all schedules when it starts.
        await expect.poll(() => keys(stage)).toEqual(pairs(a.connectionId, b.connectionId));
        await stage.store.connections.end(a.connectionId, byOperator);
        await until('its schedules to go', async () => (await keys(stage)).length === 2);
        expect(await keys(stage)).toEqual(pairs(b.connectionId));
        await stage.store.connections.connect({
          user: { id: a.userId, name: '', email: '' },
          tokens: 'sealed',
          accessExpiresAt: new Date(),
        });
        await until('its schedules to be back', async () => (await keys(stage)).length === 4);
      } finally {
        await worker.stop();
      }
    }));
});
