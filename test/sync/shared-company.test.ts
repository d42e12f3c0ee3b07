import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { byOperator } from '../support/reasons.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { dispatched } from './dispatched.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterEach(async () => {
  await stage.admin.clearFaults();
});
afterAll(async () => {
  await stage?.close();
});

describe('a company that two connections can read', () => {
  /** Both connections have listed it; the first one was first. */
  async function shared(count = 3) {
    const { companyId, ...first } = await stage.company();
    const second = await stage.person(companyId);
    const ids = await stage.upload(companyId, count);
    await stage.run(first.connectionId);
    await stage.run(second.connectionId);
    return { companyId, first, second, ids };
  }
  const owners = async (companyId: string) => [
    ...new Set((await stage.assets(companyId)).map((asset) => asset.connectionId)),
  ];

  test('an asset that two connections can read is dispatched once', async () => {
    const { companyId, first, second, ids } = await shared();
    expect(await owners(companyId)).toEqual([first.connectionId]);
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({
      status: 'done',
      seen: 3,
      new: 0,
      changed: 0,
    });
    expect((await dispatched(stage, ...ids)).sort()).toEqual(ids.sort());
    expect(await dispatched(stage, ...ids)).toEqual([]);
  });

  test('two connections list the same company at the same time without a deadlock', { tags: 'slow' }, async () => {
    const { companyId, ...first } = await stage.company();
    const second = await stage.person(companyId);
    const ids = await stage.upload(companyId, 300);
    for (const mode of ['incremental', 'full'] as const) {
      const runs = await Promise.all([stage.sync(first.connectionId, mode), stage.sync(second.connectionId, mode)]);
      for (const run of runs) expect(run).toMatchObject({ status: 'done', error: null });
      if (mode === 'incremental') {
        const [a, b] = await Promise.all(runs.map((run) => stage.store.syncs.get(run.id)));
        expect(a!.new + b!.new).toBe(300);
      }
    }
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('assets of a connection that ends continue with another one of the same company, whatever their state', async () => {
    const { companyId, first, second, ids } = await shared();
    expect(await dispatched(stage, ...ids.slice(0, 2))).toHaveLength(2);
    const leased = (await stage.store.assets.take(ids[0]!, 60_000))!;
    expect(await stage.store.assets.startTransfer(leaseOf(leased))).toBe(true);

    await stage.admin.endConnections(first.userId);
    expect(await stage.sync(first.connectionId)).toMatchObject({ status: 'failed', pages: 0 });
    await stage.handOver();
    expect(await owners(companyId)).toEqual([second.connectionId]);
    expect((await stage.assets(companyId)).map(({ state, queuedAt }) => [state, queuedAt])).toEqual(
      ids.map(() => ['pending', null]),
    );
    expect(await stage.store.assets.mirrored(leaseOf(leased), {} as never)).toBe(false);
    expect((await dispatched(stage, ...ids)).sort()).toEqual(ids.sort());
  });

  test('assets continue with another connection when the first one can no longer read their company', async () => {
    const { companyId, first, second, ids } = await shared();
    await stage.admin.addCompany({ id: `${companyId}-2`, name: 'Another', userIds: [first.userId] });
    await stage.admin.setAccess(companyId, first.userId, false);
    await stage.sync(first.connectionId);
    await stage.handOver();
    expect(await owners(companyId)).toEqual([second.connectionId]);
    expect((await dispatched(stage, ...ids)).sort()).toEqual(ids.sort());
  });

  test('assets wait when all their connections have ended, and continue with the first that reconnects', async () => {
    const { companyId, first, second, ids } = await shared();
    await stage.store.connections.end(second.connectionId, byOperator);
    await stage.store.connections.end(first.connectionId, byOperator);
    expect(await dispatched(stage, ...ids)).toEqual([]);
    await connectAs(stage.mirror, second.userId);
    await stage.handOver();
    expect(await owners(companyId)).toEqual([second.connectionId]);
    expect((await dispatched(stage, ...ids)).sort()).toEqual(ids.sort());
  });

  test('assets of an ended connection get another one in batches, as there may be a million', async () => {
    const { companyId, first, second } = await shared(5);
    await stage.query(`UPDATE assets SET state = 'mirrored', next_at = NULL WHERE company_id = $1`, [companyId]);
    await stage.store.connections.end(first.connectionId, byOperator);
    await stage.sync(second.connectionId);
    expect(await owners(companyId)).toEqual([first.connectionId]);
    const moved = [];
    for (let i = 0; i < 4; i++) moved.push(await stage.store.connections.adopt(2));
    expect(moved).toEqual([2, 2, 1, 0]);
    expect(await owners(companyId)).toEqual([second.connectionId]);
  });

  test('assets without a connection go to a connection that can read their company later', async () => {
    const { companyId, first, second, ids } = await shared();
    await Promise.all([
      stage.store.connections.end(first.connectionId, byOperator),
      stage.store.connections.end(second.connectionId, byOperator),
    ]);
    const third = await stage.person();
    await stage.admin.setAccess(companyId, third.userId, true);
    await stage.sync(third.connectionId);
    await stage.handOver();
    expect(await owners(companyId)).toEqual([third.connectionId]);
    expect((await dispatched(stage, ...ids)).sort()).toEqual(ids.sort());
  });
});
