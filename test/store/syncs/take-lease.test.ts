import { afterAll, expect, test } from 'vitest';
import { LeaseLost } from '../../../src/floor/errors.ts';
import type { Reason } from '../../../src/floor/reason-codes.ts';
import type { TakenSync } from '../../../src/store/syncs/take-lease.ts';
import { why } from '../../support/reasons.ts';
import { until } from '../../support/until.ts';
import { consented, leaseTo, listed, newStore, running } from '../records.ts';
import { ids, recorder } from './pages.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());
const record = recorder(store);

test('a sync that has lost its lease writes nothing', async () => {
  const run = await running(store, 'e');
  await store.syncs.release(run.lease);
  const next = await store.syncs.takeNext(leaseTo(run.connectionId, 'next'));
  expect(next).toMatchObject({ id: run.sync.id, status: 'running' });
  await expect(record(run, 'e', [listed('late')], { highWaterMark: 5, sighted: ['late'] })).rejects.toThrow(LeaseLost);
  await store.syncs.endSync(run.sync, run.lease, { status: 'failed', error: why });
  expect(await store.assets.get('late')).toBeUndefined();
  expect(await store.syncs.get(run.sync.id)).toMatchObject({ status: 'running', pages: 0, error: null });
  expect(await store.syncs.takeNext(leaseTo(run.connectionId, 'third'))).toBe('busy');
});

test('one process takes a sync, and another takes it over when its lease has expired', async () => {
  const run = await running(store, 'f');
  await store.syncs.extendLease({ ...run.lease, leaseMs: 1 });
  const taken = await until('the lease to run out', async () => {
    const all = await Promise.all(
      ids('owner', 10).map((owner) => store.syncs.takeNext(leaseTo(run.connectionId, owner))),
    );
    const mine = all.filter((sync) => sync !== 'busy');
    return mine.length > 0 && mine;
  });
  expect(taken).toMatchObject([{ id: run.sync.id }]);
});

test('requests during a running sync share the next one', async () => {
  const run = await running(store, 'g');
  const ask = () => store.syncs.request(run.connectionId, 'incremental');
  const asked = new Set(await Promise.all(Array.from({ length: 20 }, ask)));
  expect(asked.size).toBe(1);
  expect(asked).not.toContain(run.sync.id);
  const other = await store.syncs.request(run.connectionId, 'incremental', { since: 5 });
  expect(asked).not.toContain(other);
  await store.syncs.endSync(run.sync, run.lease, { status: 'done', error: null });
  expect(await store.syncs.takeNext(run.lease)).toMatchObject({ id: [...asked][0] });
});

test('a full sync that is requested while another runs is taken next, by one owner, and not while the connection is paused', async () => {
  const { connectionId, lease, sync } = await running(store, 'j');
  const next = await store.syncs.request(connectionId, 'full');
  expect(await store.syncs.endSync(sync, lease, { status: 'done', error: null })).toMatchObject({ more: true });
  await store.syncs.release(lease);
  await store.connections.pause(connectionId);
  expect(await store.syncs.takeNext(lease)).toBeUndefined();
  await store.connections.resume(connectionId);
  const taken = await Promise.all(ids('who', 10).map((who) => store.syncs.takeNext(leaseTo(connectionId, who))));
  expect(taken.filter((found) => found !== 'busy')).toMatchObject([
    {
      id: next,
      mode: 'full',
      status: 'running',
      scope: {},
      settings: {},
      companyAccess: { status: 'active', readable: [{ id: 'j', name: 'j', highWaterMark: null }] },
      storedTokens: { status: 'active', tokens: 'sealed', tokenVersion: 1, isFresh: true },
    },
  ]);
});

test('a second request to accept changes accepts all until then', async () => {
  const { connectionId } = await running(store, 'k');
  const ask = (scope: object) => store.syncs.request(connectionId, 'full', scope);
  for (const [scope, moves] of [
    [{ companyId: 'k', acceptReplaced: true }, true],
    [{ companyId: 'k' }, false],
  ] as const) {
    const id = (await ask(scope))!;
    const first = (await store.syncs.get(id))!.requestedAt;
    await until('the clock to go on', async () => (await store.now()) > first.getTime() + 1);
    expect(await ask(scope)).toBe(id);
    expect((await store.syncs.get(id))!.requestedAt > first).toBe(moves);
  }
});

test('a sync that its owner ends while another asks for it is not taken again', { tags: 'slow' }, async () => {
  for (let round = 0; round < 50; round++) {
    const { connectionId, lease, sync } = await running(store, `ended ${round}`);
    const [, taken] = await Promise.all([
      store.syncs.endSync(sync, lease, { status: 'done', error: null }),
      store.syncs.takeNext(leaseTo(connectionId, 'another')),
    ]);
    expect(['busy', undefined]).toContain(taken);
    expect(await store.syncs.get(sync.id)).toMatchObject({ status: 'done' });
    expect(await store.connections.get(connectionId)).toMatchObject({ syncOwner: null, syncUntil: null });
  }
});

test('a sync does not end twice, even if the lease is kept for a waiting one', async () => {
  const { connectionId, lease, sync } = await running(store, 'twice ended');
  await store.syncs.request(connectionId, 'full');
  expect(await store.syncs.endSync(sync, lease, { status: 'done', error: null })).toMatchObject({ more: true });
  expect(await store.syncs.endSync(sync, lease, { status: 'failed', error: why })).toBeUndefined();
  expect(await store.syncs.get(sync.id)).toMatchObject({ status: 'done', error: null });
  expect(await store.connections.get(connectionId)).toMatchObject({ lastError: null });
});

test('the first sync after a reconnect clears an earlier failure', async () => {
  const grant = consented('who reconnects');
  const { id } = await store.connections.connect(grant);
  const run = async (mode: 'full' | 'incremental', outcome: { status: 'done' | 'failed'; error: Reason | null }) => {
    await store.syncs.request(id, mode);
    const sync = (await store.syncs.takeNext(leaseTo(id, 'owner'))) as TakenSync;
    await store.syncs.endSync(sync, leaseTo(id, 'owner'), outcome);
    return (await store.connections.get(id))!.lastError;
  };
  const done = { status: 'done', error: null } as const;
  expect(await run('full', { status: 'failed', error: why })).toEqual(why);
  expect(await run('incremental', done)).toEqual(why);
  await store.connections.connect(grant);
  expect(await run('incremental', done)).toBeNull();
});

test('a request at the moment when a sync ends is not lost', { tags: 'slow' }, async () => {
  const { connectionId, lease, sync } = await running(store, 'h');
  await store.syncs.endSync(sync, lease, { status: 'done', error: null });
  expect(await store.syncs.takeNext(lease)).toBeUndefined();
  for (let round = 0; round < 50; round++) {
    // A requester checks for a waiting sync; a running process checks again before it ends.
    const come = async (who: string) => {
      for (;;) {
        const next = await store.syncs.takeNext(leaseTo(connectionId, who));
        if (next === 'busy' || next === undefined) return;
        await store.syncs.endSync(next, leaseTo(connectionId, who), { status: 'done', error: null });
      }
    };
    const asked = await Promise.all(
      ids(`round ${round}`, 3).map(async (who) => {
        const id = (await store.syncs.request(connectionId, 'incremental'))!;
        await come(who);
        return id;
      }),
    );
    for (const id of asked) expect(await store.syncs.get(id)).toMatchObject({ status: 'done' });
  }
});
