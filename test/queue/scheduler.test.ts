// @module-tag slow
import { describe, expect, inject, test } from 'vitest';
import { startMirror } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];
const hour = 3_600_000;

describe.each(backends)('scheduled syncs on $name', ({ redis }) => {
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
        const polling = async () => (await stage.mirror.api('GET', `/connections/${connectionId}`)).polling;
        await stage.sync(connectionId);
        expect(await polling()).toEqual({ interval: hour, reason: 'idle' });
        await stage.upload(companyId);
        await stage.sync(connectionId);
        expect(await polling()).toEqual({ interval: 60_000, reason: 'active' });
        await stage.query("UPDATE connections SET news_at = now() - interval '1 h'");
        expect(await polling()).toEqual({ interval: hour, reason: 'idle' });
      },
      { SYNC_INTERVAL_ACTIVE: '1m' },
    ));
});
