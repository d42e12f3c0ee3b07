import { afterAll, expect, test } from 'vitest';
import { leaseOf } from '../../../src/store/assets/leases.ts';
import { mirroredAlone } from '../../support/mirrored.ts';
import { listed, newStore, running } from '../records.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

test('a snapshot does not see a change that was made between its reads', async () => {
  const run = await running(store, 'a');
  await store.syncs.recordPage({
    ...run,
    companyId: 'a',
    assets: [listed('film')],
    decide: () => ({ state: 'pending', reason: null, reset: true, due: true }),
    position: { cursor: null },
  });
  await store.assets.dispatch({ perConnection: 1 });
  const lease = leaseOf((await store.assets.take('film', 60_000))!);
  const figures = await store.snapshot(async (at) => {
    const { sidecars } = await at.counts.outstanding();
    expect(await store.assets.mirrored(lease, { ...mirroredAlone, transcriptState: 'pending', waitMs: 0 })).toBe(true);
    return { sidecars, states: (await at.counts.totals()).map(({ state }) => state) };
  });
  expect(figures).toEqual({ sidecars: 0, states: ['transferring'] });
  expect(await store.counts.outstanding()).toMatchObject({ sidecars: 1 });
});
