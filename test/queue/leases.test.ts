import { afterAll, expect, test } from 'vitest';
import { Interrupted } from '../../src/floor/errors.ts';
import { Leases } from '../../src/queue/leases.ts';
import { newStage } from '../support/stage.ts';
import { until } from '../support/until.ts';

const stage = await newStage();
const { store, timings } = stage.mirror.service.context;
const leases = new Leases({ store, timings: { ...timings, assetLease: 60_000 } });
afterAll(async () => {
  leases.close();
  await stage.close();
});

/** An asset, and how this process leases it. */
async function newAsset() {
  const { companyId, connectionId } = await stage.company();
  const [id] = (await stage.upload(companyId)) as [string];
  await stage.sync(connectionId);
  async function take(of = leases) {
    await stage.query('UPDATE assets SET queued_at = now(), lease_until = NULL WHERE id = $1', [id]);
    return (await of.take(id))!;
  }
  return { connectionId, take };
}

test('a lease that this process takes again stops the work of the earlier one', async () => {
  const { take } = await newAsset();
  const earlier = await take();
  const later = await take();
  expect(earlier.signal.reason).toBeInstanceOf(Interrupted);
  await expect(earlier.fence()).rejects.toBeInstanceOf(Interrupted);
  earlier.forget();
  expect(leases.size).toBe(1);
  await later.fence();
  later.forget();
});

test('work on an asset stops as soon as its connection is paused', async () => {
  const [paused, other] = [await newAsset(), await newAsset()];
  const [stopped, continued] = [await paused.take(), await other.take()];
  await stage.mirror.api('POST', `/connections/${paused.connectionId}/pause`);
  // Long before the lease is renewed.
  await until('the work to stop', () => stopped.signal.aborted);
  expect(stopped.signal.reason).toBeInstanceOf(Interrupted);
  expect(continued.signal.aborted).toBe(false);
  for (const lease of [stopped, continued]) lease.forget();
});

test('all work is interrupted when the process stops, also work that begins then', async () => {
  const [earlier, later] = [await newAsset(), await newAsset()];
  const own = new Leases(stage.mirror.service.context);
  const before = await earlier.take(own);
  own.interrupt('shutting down');
  for (const lease of [before, await later.take(own)]) {
    expect(lease.signal.reason).toEqual(new Interrupted('shutting down'));
    await expect(lease.fence()).rejects.toThrow('shutting down');
    lease.forget();
  }
  own.close();
});
