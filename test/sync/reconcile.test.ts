import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { byOperator } from '../support/reasons.ts';
import { longAgo, newStage, overlap, type Stage } from '../support/stage.ts';
import { askedFor, gone, states } from './missing.ts';

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

describe('an asset that is missing from a complete listing', () => {
  test('a full sync marks a missing asset as gone after the library confirms it; an incremental sync does not', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(ids[2]!);
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', gone: 0 });
    expect(await gone(stage, companyId)).toEqual([]);

    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 1, changed: 0, error: null });
    expect(await gone(stage, companyId)).toEqual([ids[2]]);
    expect(await stage.store.assets.get(ids[2]!)).toMatchObject({
      nextAt: null,
      queuedAt: null,
      reason: { code: 'gone', inBucket: false },
    });
    expect(await stage.events({ kind: 'asset.gone', assetId: ids[2]! })).toHaveLength(1);
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ gone: 0 });
    expect(await stage.events({ kind: 'asset.gone', assetId: ids[2]! })).toHaveLength(1);
  });

  test('a missing asset that was first seen while the clock was ahead is marked as gone', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.query(`UPDATE assets SET first_seen_at = now() + interval '2 days' WHERE id = '${ids[0]}'`);
    await stage.admin.removeAsset(ids[0]!);
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 1 });
    expect(await gone(stage, companyId)).toEqual([ids[0]]);
  });

  test('only a sync that lists the whole company marks missing assets as gone', async () => {
    const { companyId, connectionId } = await stage.company();
    const [id] = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(id!);
    await stage.sync(connectionId, 'full', { since: longAgo + 1000 });
    await stage.sync(connectionId, 'full', { assetType: 'videos' });
    await stage
      .sync(connectionId, 'full', {}, { filters: { includeTypes: [], excludeTypes: ['documents'] } })
      .then((run) => {
        expect(run).toMatchObject({ seen: 4, new: 0, gone: 1 });
      });
    // Skipped types are listed, too.
    expect(await gone(stage, companyId)).toEqual([id]);
  });

  test('a missing asset that the library still serves is not marked as gone', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    const body = { assets: ids.slice(0, 2).map((id) => ({ id })), nextCursor: null };
    await stage.admin.addFault({ endpoint: 'assets', companyId, body });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 0, error: null });
    expect(await askedFor(stage, ids)).toBe(1);
    expect(await gone(stage, companyId)).toEqual([]);
  });

  test('a missing asset that cannot be requested keeps its state, others are gone, and the sync fails with the error', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 9);
    await stage.sync(connectionId);
    for (const id of ids.slice(0, 3)) await stage.admin.removeAsset(id);
    await stage.admin.addFault({ endpoint: 'asset', assetId: ids[0]!, status: 500 });
    await stage.admin.addFault({ endpoint: 'asset', assetId: ids[2]!, status: 200, body: { id: ids[2] }, cutAfter: 5 });
    const run = await stage.sync(connectionId, 'full');
    expect(run).toMatchObject({ status: 'failed', gone: 1, error: expect.stringContaining(`read asset ${ids[0]}`) });
    expect(run.error).toContain('other side closed');
    expect(await gone(stage, companyId)).toEqual([ids[1]]);
    await stage.admin.clearFaults();
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 2 });
  });

  test('an asset whose listing is unreadable does not count as missing', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 4);
    await stage.sync(connectionId);
    await stage.admin.changeAsset(ids[0]!, { override: { size: 'large' } });
    await stage.admin.changeAsset(ids[1]!, { override: { id: 7 } });
    const run = await stage.sync(connectionId, 'full');
    expect(run).toMatchObject({ status: 'done', gone: 0 });
    expect(await gone(stage, companyId)).toEqual([]);
  });

  test('a missing asset with a lease is left to its worker', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    await stage.store.assets.dispatch({ perConnection: 1000 });
    expect(await stage.store.assets.take(ids[0]!, 60_000)).toBeDefined();
    await stage.admin.removeAsset(ids[0]!);
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 0 });
    expect(await stage.store.assets.get(ids[0]!)).toMatchObject({ state: 'transferring' });
  });
});

describe('a company of a full sync', () => {
  test('a company that cannot be read loses no asset, and what failed meanwhile is tried again when it is back', async () => {
    const { companyId, connectionId, userId } = await stage.company();
    await stage.admin.addCompany({ id: `${companyId}-kept`, name: 'Kept', userIds: [userId] });
    const ids = await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    // Between the loss and the run that finds it out, a worker gets the answer that there is no such asset.
    await stage.store.assets.dispatch({ perConnection: 1000 });
    const leased = (await stage.store.assets.take(ids[0]!, 60_000))!;
    await stage.store.assets.failed(leaseOf(leased), { code: 'error', text: 'the library answered 404' });

    await stage.admin.setAccess(companyId, userId, false);
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 0, error: null });
    const logged = (msg: string) =>
      stage.mirror.lines.filter((line) => line.msg === msg && line.companyId === companyId);
    expect(logged('connection lost access to a company')).toHaveLength(1);
    expect(await stage.events({ kind: 'company.lost', connectionId })).toMatchObject([{ data: { companyId } }]);
    expect(await gone(stage, companyId)).toEqual([]);

    const more = await stage.upload(companyId, 2, { uploadDate: longAgo + 3_600_000 });
    await stage.admin.setAccess(companyId, userId, true);
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 2 });
    expect(await states(stage, companyId)).toEqual(Object.fromEntries([...ids, ...more].map((id) => [id, 'pending'])));
    const back = (await stage.events({ kind: 'company.gained', connectionId })).at(-1);
    expect(back).toMatchObject({ data: { companyId, lostAt: expect.stringMatching(/^\d{4}-/) } });
  });

  test('only the connection that an asset belongs to marks it as gone', async () => {
    const { companyId, ...first } = await stage.company();
    const second = await stage.person(companyId);
    const ids = await stage.upload(companyId, 4);
    await stage.run(first.connectionId);
    await stage.run(second.connectionId);
    await stage.admin.removeAsset(ids[0]!);
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({ gone: 0 });
    expect(await stage.sync(first.connectionId, 'full')).toMatchObject({ gone: 1 });

    await stage.store.connections.end(first.connectionId, byOperator);
    await stage.handOver();
    await stage.admin.removeAsset(ids[1]!);
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({ gone: 1 });
    expect(await gone(stage, companyId)).toEqual(ids.slice(0, 2).sort());
  });

  test('missing assets that get this connection while it judges others are judged by its next full sync', async () => {
    const { companyId, ...first } = await stage.company();
    const ids = await stage.upload(companyId, 10);
    await stage.sync(first.connectionId);
    const second = await stage.person(companyId);
    const own = await stage.upload(companyId, 10, { uploadDate: longAgo + overlap });
    await stage.sync(second.connectionId);
    await stage.store.connections.end(first.connectionId, byOperator);
    for (const id of [...ids, own[0]!]) await stage.admin.removeAsset(id);
    const count: typeof stage.store.missing.count = async (listed) => {
      const found = await stage.store.missing.count(listed);
      await stage.handOver();
      return found;
    };
    const store = { ...stage.store, missing: { ...stage.store.missing, count } };
    // One of ten is marked as gone, but eleven of twenty would be held.
    expect(await stage.sync(second.connectionId, 'full', {}, { store })).toMatchObject({ gone: 1, held: null });
    const held = expect.stringContaining('10 of 19 assets');
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({ gone: 0, held });
  });

  test('a full sync finds assets that are listed late, far behind the high-water mark, or without a date', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    ids.push(...(await stage.upload(companyId, 1, { uploadDate: longAgo - 100 * overlap })));
    ids.push(...(await stage.upload(companyId, 1, { uploadDate: longAgo + 2000 })));
    ids.push(...(await stage.upload(companyId, 1, { override: { uploadDate: null } })));
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ new: 3, gone: 0 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });
});
