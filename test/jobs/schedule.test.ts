import { describe, expect, inject, test } from 'vitest';
import { startMirror } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];
const hour = 3_600_000;

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

  test('each connection has two, at its own place in the interval, where the API says', () =>
    staged(async (stage) => {
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) ids.push((await stage.company()).connectionId);
      expect(await keys(stage)).toEqual(pairs(...ids));
      const { connections } = await stage.mirror.api('GET', '/connections');
      const all = await schedulers(stage);
      const places = new Set<number>();
      for (const id of ids) {
        const incremental = all.find((scheduler) => scheduler.key === `sync-${id}`)!;
        const full = all.find((scheduler) => scheduler.key === `full-${id}`)!;
        expect([Number(incremental.every), Number(full.every)]).toEqual([hour, 24 * hour]);
        const told = Date.parse(connections.find((c: { id: string }) => c.id === id).nextSyncAt);
        expect(incremental.next).toBe(told);
        expect(told).toBeGreaterThan(Date.now() - 1000);
        expect(told).toBeLessThanOrEqual(Date.now() + hour);
        expect(full.next! - Date.now()).toBeLessThanOrEqual(24 * hour);
        places.add(told % hour);
      }
      expect(places.size).toBe(5);
    }));

  test('runs come by themselves, incremental and full', () =>
    staged(
      async (stage) => {
        const { companyId, connectionId } = await stage.company();
        await stage.run(connectionId);
        const worker = await startMirror(stage.ground, stage.library, 'worker');
        try {
          const ids = await stage.upload(companyId);
          await until('the upload to be found', async () => (await stage.ids(companyId)).length === 1);
          // Far behind the mark: only a full run sees it.
          ids.push(...(await stage.upload(companyId, 1, { uploadDate: 0 })));
          await until('the old one to be found', async () => (await stage.ids(companyId)).length === 2);
          expect(await stage.ids(companyId)).toEqual(ids.sort());
        } finally {
          await worker.stop();
        }
      },
      { SYNC_INTERVAL: '1s', RECONCILE_INTERVAL: '4s' },
    ));

  test('what a crash left undone and what has changed is made right when a worker starts', () =>
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

  test('a connection that ends loses its own at once, and has them again when it is back', () =>
    staged(async (stage) => {
      const worker = await startMirror(stage.ground, stage.library, 'worker');
      try {
        const [a, b] = [await stage.company(), await stage.company()];
        expect(await keys(stage)).toEqual(pairs(a.connectionId, b.connectionId));
        await stage.store.connections.end(a.connectionId, 'as a test');
        await until('its schedules to go', async () => (await keys(stage)).length === 2);
        expect(await keys(stage)).toEqual(pairs(b.connectionId));
        await stage.store.connections.saveGrant({
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
