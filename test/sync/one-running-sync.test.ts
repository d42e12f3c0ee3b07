import { describe, expect, inject, test } from 'vitest';
import { newHttpLine } from '../support/http-line.ts';
import { startMirror } from '../support/mirror.ts';
import { newStage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];

describe.each(backends)('syncs with queues in $name', ({ redis }) => {
  test('a connection has one running and at most one waiting sync, in any number of processes', {
    tags: 'slow',
  }, async () => {
    const own = await newStage({ redis });
    const line = await newHttpLine(own.library.apiUrl);
    const library = { ...own.library, apiUrl: line.endpoint };
    const workers = [
      await startMirror(own.ground, library, 'worker'),
      await startMirror(own.ground, library, 'worker'),
    ];
    try {
      const { companyId, connectionId } = await own.company();
      await until('the first run', async () => (await own.store.connections.get(connectionId))?.lastSyncAt);
      const before = await own.listings(companyId);
      const goOn = Promise.withResolvers<void>();
      line.set({ on: ({ url }) => url.includes(`/${companyId}/assets`), times: 1, after: goOn.promise });
      const path = `/connections/${connectionId}/resync`;
      const { syncId } = await own.mirror.api('POST', path, { mode: 'full' });
      await until('the run to ask', () => line.calls.some(({ met }) => met));
      const modes = Array.from({ length: 30 }, (_, i) => (i % 3 ? 'full' : 'incremental'));
      const asked = await Promise.all(modes.map((mode) => own.mirror.api('POST', path, { mode })));
      expect(await own.store.syncs.countOpen()).toEqual({ running: 1, waiting: 1 });
      const ids = new Set(asked.map((answer) => answer.syncId));
      expect(ids.size).toBe(1);
      expect(ids).not.toContain(syncId);
      goOn.resolve();
      await until('both to end', async () => {
        const { running, waiting } = await own.store.syncs.countOpen();
        expect(running).toBeLessThanOrEqual(1);
        return running + waiting === 0;
      });
      for (const id of [syncId, ...ids])
        expect(await own.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 1 });
      expect(await own.listings(companyId)).toBe(before + 2);
    } finally {
      for (const worker of workers) await worker.stop();
      await line.close();
      await own.close();
    }
  });
});
