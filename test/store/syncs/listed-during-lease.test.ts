import { afterAll, expect, test } from 'vitest';
import type { Reason } from '../../../src/floor/reason-codes.ts';
import { leaseOf } from '../../../src/store/assets/leases.ts';
import type { Decide } from '../../../src/store/syncs/write-assets.ts';
import { mirroredAlone as found } from '../../support/mirrored.ts';
import { until } from '../../support/until.ts';
import { listed, newStore, running } from '../records.ts';
import { type Run, recorder } from './pages.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());
const record = recorder(store);

const why: Reason = { code: 'error', text: 'why' };

/** A leased asset. */
async function inHand(run: Run, companyId: string, id: string) {
  await record(run, companyId, [listed(id)]);
  await until('its lease to come', async () => {
    await store.assets.dispatch({ perConnection: 100 });
    return (await store.assets.get(id))!.queuedAt;
  });
  return leaseOf((await store.assets.take(id, 60_000))!);
}

test('the result of a worker does not hide what a listing has seen since', async () => {
  const run = await running(store, 'since');
  const changed = (id: string) => record(run, 'since', [listed(id, { name: 'another' })]);
  for (const [id, conclude] of [
    ['since failed', (lease) => store.assets.failed(lease, why)],
    ['since unavailable', (lease) => store.assets.unavailable(lease, why)],
    ['since mirrored', (lease) => store.assets.mirrored(lease, found)],
  ] as [string, (lease: ReturnType<typeof leaseOf>) => Promise<boolean>][]) {
    const lease = await inHand(run, 'since', id);
    await changed(id);
    expect(await conclude(lease)).toBe(true);
    const { state, nextAt, attempts } = (await store.assets.get(id))!;
    // The listing has made it pending, so a worker compares the bucket again.
    expect({ id, state, due: nextAt !== null, attempts }).toEqual({ id, state: 'pending', due: true, attempts: 0 });

    const again = await inHand(run, 'since', `${id}, and nothing changed`);
    expect(await conclude(again)).toBe(true);
    expect(await store.assets.get(again.assetId)).toMatchObject({ state: id.split(' ')[1], nextAt: null });
  }
});

test('an asset that a listing changes during its lease does not wait for the next attempt', async () => {
  const run = await running(store, 'soon');
  for (const [id, conclude] of [
    ['soon again', (lease) => store.assets.retryLater(lease, 3_600_000, { reason: why })],
    ['soon processing', (lease) => store.assets.processing(lease, 3_600_000)],
  ] as [string, (lease: ReturnType<typeof leaseOf>) => Promise<boolean>][]) {
    const waits = async ({ assetId }: { assetId: string }) =>
      (await store.assets.get(assetId))!.nextAt!.getTime() > (await store.now());
    const changed = await inHand(run, 'soon', id);
    await record(run, 'soon', [listed(id, { name: 'another' })]);
    await conclude(changed);
    expect(await waits(changed)).toBe(false);
    const unchanged = await inHand(run, 'soon', `${id}, unchanged`);
    await conclude(unchanged);
    expect(await waits(unchanged)).toBe(true);
  }
});

test('a transcript and a thumbnail that a listing requests during the lease stay requested', async () => {
  const run = await running(store, 'asked');
  const requests: Decide = () => ({
    ...{ state: 'mirrored', reason: null, reset: false, due: true },
    ...{ transcriptState: 'pending', thumbnailState: 'pending' },
  });
  const page = { ...run, companyId: 'asked', position: {}, decide: requests };
  const gaveUp = { ...found, transcriptState: 'gave_up', thumbnailState: 'none' } as const;
  for (const [id, conclude] of [
    ['asked mirrored', (lease) => store.assets.mirrored(lease, gaveUp)],
    ['asked given up', (lease) => store.assets.giveUpSidecars(lease, why)],
    ['asked unavailable', (lease) => store.assets.unavailable(lease, why)],
  ] as [string, (lease: ReturnType<typeof leaseOf>) => Promise<boolean>][]) {
    const lease = await inHand(run, 'asked', id);
    await store.syncs.recordPage({ ...page, assets: [listed(id)] });
    expect(await conclude(lease)).toBe(true);
    const { transcriptState, thumbnailState, nextAt } = (await store.assets.get(id))!;
    expect({ id, transcriptState, thumbnailState }).toEqual({
      ...{ id, transcriptState: 'pending', thumbnailState: 'pending' },
    });
    expect(nextAt).not.toBeNull();
  }
});

test('after a lease has ended, a late renewal or a second result changes nothing', async () => {
  const run = await running(store, 'late');
  const lease = await inHand(run, 'late', 'late');
  expect(await store.assets.renew(lease, 60_000)).toBe(true);
  expect(await store.assets.retryLater(lease, 0, { spent: false, reason: null })).toBe(true);
  expect(await store.assets.renew(lease, 60_000)).toBe(false);
  expect(await store.assets.failed(lease, why)).toBe(false);
  expect(await store.assets.startTransfer(lease)).toBe(false);
  expect(await store.assets.get('late')).toMatchObject({ state: 'pending', leaseUntil: null });
  await until('its next lease', async () => {
    await store.assets.dispatch({ perConnection: 100 });
    return store.assets.take('late', 60_000);
  });
});
