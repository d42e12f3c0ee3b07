import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { LeaseLost } from '../../src/floor/errors.ts';
import { sidecarKeys } from '../../src/storage/keys.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { contentOf } from '../support/mirror.ts';
import { connectAs, longAgo, newStage, overlap, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';

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

/** A user with two companies, each with a recorded asset. */
async function reader() {
  const { companyId: kept, ...person } = await stage.company();
  const other = `${kept}-other`;
  await stage.admin.addCompany({ id: other, name: 'The other', userIds: [person.userId] });
  const [keptId] = await stage.upload(kept);
  const [otherId] = await stage.upload(other);
  await stage.run(person.connectionId);
  return { ...person, kept, other, keptId: keptId!, otherId: otherId! };
}
const readable = async (connectionId: string) =>
  (await stage.store.connections.companies([connectionId])).map((company) => company.id);
/** Leases all due assets; returns which of these were among them. */
async function dispatched(...ids: string[]): Promise<string[]> {
  const due = (await stage.store.assets.dispatch({ perConnection: 1000 }))!;
  return due.map((asset) => asset.id).filter((id) => ids.includes(id));
}

test('a first connect is one event; later changes of /me are events with the names of companies', async () => {
  const { companyId, connectionId, userId } = await stage.company();
  await stage.sync(connectionId);
  const events = (kind: string) => stage.events({ kind, connectionId });
  expect(await events('company.gained')).toEqual([]);
  const data = { companyId: `${companyId}-later`, companyName: 'Later Ltd' };
  await stage.admin.addCompany({ id: data.companyId, name: data.companyName, userIds: [userId] });
  await stage.sync(connectionId);
  await stage.admin.setAccess(data.companyId, userId, false);
  await stage.sync(connectionId);
  expect(await events('company.gained')).toMatchObject([{ data }]);
  expect(await events('company.lost')).toMatchObject([{ data }]);
});

describe('two companies that list the same asset id', () => {
  /** `first` has recorded the id; `second` lists it with what `override` says, read by somebody else. */
  async function twice(override: Record<string, unknown>) {
    const [first, second] = [await stage.company(), await stage.company()];
    const [id] = await stage.upload(first.companyId, 1, { override: { size: 5 } });
    await stage.sync(first.connectionId);
    const before = (await stage.store.assets.get(id!))!;
    const listing = { ...before.listed, ...override };
    await stage.admin.addFault({ endpoint: 'assets', companyId: second.companyId, body: { assets: [listing] } });
    const conflicts = () => stage.events({ kind: 'asset.conflict', assetId: id! });
    return { first, second, id: id!, before, conflicts };
  }

  test.each([{ size: 6 }, { uploadDate: longAgo + 7 }, { name: 'another name', projectId: 'another' }, {}])(
    'an asset id listed by two companies (%o) stays with the first, and one event reports the conflict',
    async (override) => {
      const { first, second, id, before, conflicts } = await twice(override);
      for (const mode of ['incremental', 'full'] as const) {
        const run = await stage.sync(second.connectionId, mode);
        expect(run).toMatchObject({ status: 'done', new: 0, changed: 0 });
        expect(run.error).toMatch(`asset ${id}: company ${first.companyId} has an asset with this id`);
        await stage.sync(first.connectionId, mode);
      }
      expect(await stage.store.assets.get(id)).toMatchObject({
        companyId: first.companyId,
        connectionId: first.connectionId,
        name: before.name,
        projectId: before.projectId,
        size: 5,
        uploadDate: longAgo,
      });
      expect((await stage.store.assets.get(id))!.revision).toBe(before.revision);
      expect(await conflicts()).toMatchObject([
        {
          connection_id: second.connectionId,
          asset_id: id,
          data: { companyId: second.companyId, recordedFor: first.companyId },
        },
      ]);
    },
  );

  test('an asset of two companies moves to the second when nobody can read the first any more', async () => {
    const { first, second, id } = await twice({ size: 6 });
    await stage.sync(second.connectionId);
    await stage.admin.setAccess(first.companyId, first.userId, false);
    await stage.sync(first.connectionId);
    expect(await stage.sync(second.connectionId)).toMatchObject({ changed: 1, error: null });
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId, size: 6 });
  });

  test('an unreadable listing of an asset that another company has changes no record; the sync reports it', async () => {
    const { second, id, before, conflicts } = await twice({ size: 'five' });
    const run = await stage.sync(second.connectionId);
    expect(run).toMatchObject({ status: 'done', error: expect.stringMatching(`^asset ${id}: size: [^;]*$`) });
    expect(await stage.store.assets.get(id)).toMatchObject({
      connectionId: before.connectionId,
      revision: before.revision,
      reason: null,
    });
    expect(await conflicts()).toEqual([]);
  });

  test('an asset that is gone from its company moves to another company that lists the same file', async () => {
    const { first, second, id, conflicts } = await twice({});
    await stage.admin.removeAsset(id);
    await stage.sync(first.connectionId, 'full');
    expect(await stage.sync(second.connectionId)).toMatchObject({ changed: 1, error: null });
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId, state: 'pending' });
    expect(await conflicts()).toEqual([]);
  });

  test('the record of an asset that moves to another company is written again, and names that one', async () => {
    const worker = workerOf(stage);
    const [first, second] = [await stage.company(), await stage.company()];
    const [id] = (await stage.upload(first.companyId, 1, { content: { text: 'moved' } })) as [string];
    await stage.sync(first.connectionId);
    await worker.complete(id);
    await stage.admin.removeAsset(id);
    await stage.sync(first.connectionId, 'full', { acceptGone: true });
    await stage.upload(second.companyId, 1, { id, content: { text: 'moved' } });
    await stage.sync(second.connectionId);
    const { state, media, nextAt } = (await stage.store.assets.get(id))!;
    expect({ state, isDue: nextAt !== null }).toEqual({ state: 'mirrored', isDue: true });
    await worker.complete(id);
    await worker.close();
    const record = await contentOf(stage.ground.storage, sidecarKeys.record(media!.key));
    expect(JSON.parse(record!.toString())).toMatchObject({ companyId: second.companyId, media: { key: media!.key } });
  });

  test('an asset with the id of a gone asset of another company has none of the folders of that one', async () => {
    const { first, second, id } = await twice({ size: 6 });
    await stage.query('UPDATE assets SET earlier_keys = $2 WHERE id = $1', [id, [`${first.companyId}/old/${id}/film`]]);
    await stage.admin.removeAsset(id);
    await stage.sync(first.connectionId, 'full');
    await stage.sync(second.connectionId);
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId, size: 6, earlierKeys: [] });
  });

  test('an asset moves to a second company once an operator accepts that the first one lacks it', async () => {
    const { first, second, id } = await twice({});
    await stage.admin.addFault({ endpoint: 'assets', companyId: first.companyId, body: { assets: [] } });
    expect(await stage.sync(second.connectionId)).toMatchObject({ changed: 0 });
    await stage.sync(first.connectionId, 'full', { companyId: first.companyId, acceptGone: true });
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({ changed: 1, error: null });
    expect(await stage.store.assets.get(id)).toMatchObject({ companyId: second.companyId });
  });

  test('a sync of one named asset fails with the reason if another company has this id', async () => {
    const { first, second, id, before } = await twice({});
    await stage.admin.addFault({ endpoint: 'asset', assetId: id, body: { asset: before.listed } });
    const run = await stage.sync(second.connectionId, 'full', { assetIds: [id] });
    expect(run).toMatchObject({
      status: 'failed',
      error: expect.stringContaining(`company ${first.companyId} has an asset with this id`),
    });
    expect(stage.mirror.lines).toContainEqual(expect.objectContaining({ event: 'sync.failed', syncId: run.id }));
    expect(await stage.store.assets.get(id)).toMatchObject({
      companyId: first.companyId,
      connectionId: first.connectionId,
      revision: before.revision,
    });
  });
});

describe('the companies in /me', () => {
  test('a company that appears in /me is listed from its beginning', async () => {
    const { connectionId, userId, companyId } = await stage.company();
    await stage.upload(companyId);
    await stage.run(connectionId);
    const later = await stage.company();
    const ids = await stage.upload(later.companyId, 2, { uploadDate: longAgo - 10 * overlap });
    await stage.admin.setAccess(later.companyId, userId, true);
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 2 });
    expect(await stage.ids(later.companyId)).toEqual(ids.sort());
  });

  test('a company that leaves /me is not listed; its assets and its high-water mark wait until it is back', async () => {
    const { connectionId, userId, kept, other, keptId, otherId } = await reader();
    await stage.admin.setAccess(other, userId, false);
    await stage.admin.clearRequests();
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', error: null, pages: 1 });
    expect(await readable(connectionId)).toEqual([kept]);
    expect(await stage.listings(other)).toBe(0);
    expect(await stage.ids(other)).toEqual([otherId]);
    expect(await dispatched(keptId, otherId)).toEqual([keptId]);

    const [hidden] = await stage.upload(other, 1, { uploadDate: longAgo - overlap });
    const [found] = await stage.upload(other, 1, { uploadDate: longAgo + 1 });
    await stage.admin.setAccess(other, userId, true);
    await stage.sync(connectionId);
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
    expect(await stage.ids(other)).toEqual([otherId, found].sort());
    expect(await stage.ids(other)).not.toContain(hidden);
    expect((await dispatched(otherId, found!)).sort()).toEqual([otherId, found].sort());
  });

  describe('an asset that moves to another company', () => {
    /** Two assets of such a company: one waits, one is mirrored. `reader` reads both companies until the first one is lost. */
    async function moved() {
      const at = await reader();
      const [mirroredId] = await stage.upload(at.other);
      await stage.sync(at.connectionId);
      await stage.query(`UPDATE assets SET state = 'mirrored', next_at = NULL, mirrored_at = now() WHERE id = $1`, [
        mirroredId,
      ]);
      for (const id of [at.otherId, mirroredId!]) {
        const { name, uploadDate } = (await stage.store.assets.get(id))!;
        await stage.admin.removeAsset(id);
        await stage.upload(at.kept, 1, { id, name: name!, uploadDate: uploadDate! });
      }
      await stage.admin.setAccess(at.other, at.userId, false);
      return { ...at, mirroredId: mirroredId! };
    }

    test('a full sync moves an asset from an unreadable company to the one that lists it, and keeps its state', async () => {
      const { connectionId, kept, otherId, mirroredId } = await moved();
      expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', error: null });
      expect(await stage.ids(kept)).toEqual(expect.arrayContaining([otherId, mirroredId]));
      // The record of the mirrored one names the other company, and is written again.
      expect((await dispatched(otherId, mirroredId)).sort()).toEqual([otherId, mirroredId].sort());
      expect(await stage.store.assets.get(mirroredId)).toMatchObject({ state: 'mirrored', recordKey: null });
    });

    test('a sync of one named asset moves it from an unreadable company to the only readable one', async () => {
      const { connectionId, kept, otherId } = await moved();
      const run = await stage.sync(connectionId, 'full', { assetIds: [otherId] });
      expect(run).toMatchObject({ status: 'done', error: null });
      expect(await stage.store.assets.get(otherId)).toMatchObject({ companyId: kept });
      expect(await dispatched(otherId)).toEqual([otherId]);
    });

    test('a sync of one named asset fails, and advises a full resync, if its company is not certain', async () => {
      const { connectionId, userId, kept, other, otherId } = await moved();
      await stage.admin.addCompany({ id: `${kept}-third`, name: 'The third', userIds: [userId] });
      const run = await stage.sync(connectionId, 'full', { assetIds: [otherId] });
      expect(run).toMatchObject({ status: 'failed', error: expect.stringContaining('full resync') });
      expect(await stage.store.assets.get(otherId)).toMatchObject({ companyId: other });
    });

    test('a full sync moves an asset whose company only an ended connection could read', async () => {
      const { kept, userId, ...first } = await moved();
      await stage.admin.setAccess(first.other, userId, true);
      await stage.sync(first.connectionId);
      const second = await stage.person(kept);
      await stage.store.connections.end(first.connectionId, 'as a test');
      await stage.sync(second.connectionId, 'full');
      expect(await stage.store.assets.get(first.otherId)).toMatchObject({
        companyId: kept,
        connectionId: second.connectionId,
      });
      expect(await dispatched(first.otherId)).toEqual([first.otherId]);
    });
  });

  test('queued and leased assets of a company that left /me are not worked on until it is back', async () => {
    const { connectionId, userId, other, keptId, otherId } = await reader();
    const [second] = await stage.upload(other);
    await stage.sync(connectionId);
    expect(await dispatched(keptId, otherId, second!)).toHaveLength(3);
    const leased = (await stage.store.assets.take(otherId, 60_000))!;
    await stage.admin.setAccess(other, userId, false);
    await stage.sync(connectionId);

    const lease = leaseOf(leased);
    expect(await stage.store.assets.renew([lease], 60_000)).toEqual(new Set());
    expect(await stage.store.assets.failed(lease, { code: 'error', text: 'the library answered 404' })).toBe(false);
    for (const id of [otherId, second!]) {
      expect(await stage.store.assets.take(id, 60_000)).toBeUndefined();
      expect(await stage.store.assets.get(id)).toMatchObject({ state: 'pending', attempts: 0, queuedAt: null });
    }
    await stage.admin.setAccess(other, userId, true);
    await stage.sync(connectionId);
    expect(await dispatched(otherId, second!)).toHaveLength(2);
    expect(await stage.store.assets.take(otherId, 60_000)).toMatchObject({ id: otherId });
  });

  test.each([
    ['companies', { user: { id: 'USER' } }],
    ['companies', { user: { id: 'USER' }, companies: { 0: 'x' } }],
    ['user', { companies: [] }],
    ['another user', { user: { id: 'somebody else' }, companies: [] }],
    ['not JSON', 'Hello'],
  ])('an unreadable answer of /me (%s) fails the sync, and no company is lost', async (field, body) => {
    const { connectionId, userId, kept, other } = await reader();
    await stage.admin.addFault({ endpoint: 'me', body: JSON.parse(JSON.stringify(body).replace('USER', userId)) });
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'failed', error: expect.stringContaining(field) });
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
  });

  test('an error of /me fails the sync, and no company is lost', async () => {
    const { connectionId, kept, other } = await reader();
    await stage.admin.addFault({ endpoint: 'me', status: 503 });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'failed', error: expect.stringContaining('503') });
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'active' });
  });

  test('an unreadable company in /me is reported, and the others stay and are listed', async () => {
    const { connectionId, userId, kept, other } = await reader();
    const [id] = await stage.upload(other, 1, { uploadDate: longAgo + 1 });
    const companies = [{ id: kept, name: 5 }, { id: other }, null, { id: 'x'.repeat(1601) }];
    await stage.admin.addFault({ endpoint: 'me', body: { user: { id: userId }, companies } });
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'done', new: 1 });
    expect(run.error).toMatch(/\/me: company "x{100}" was skipped: id: expected an id of at most 1600 bytes/);
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
    expect(await stage.ids(other)).toContain(id);
  });

  test('/me may list a company twice, or with a name that no database can hold', async () => {
    const { connectionId, userId, kept, other } = await reader();
    const companies = [
      { id: other, name: 'One' },
      { id: kept, name: 'A\u0000B\ud800' },
      { id: other, name: 'Two' },
    ];
    await stage.admin.addFault({ endpoint: 'me', body: { user: { id: userId }, companies } });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', error: null });
    const { companies: found } = await stage.mirror.api('GET', `/connections/${connectionId}`);
    expect(Object.fromEntries(found.map((c: { id: string; name: string }) => [c.id, c.name]))).toEqual({
      [kept]: 'AB\ufffd',
      [other]: 'Two',
    });
  });

  test('an answer of /me that was requested before the lease was lost changes nothing', async () => {
    const { connectionId, kept, other } = await reader();
    const stale = stage.store.connections.setCompanies(connectionId, [], {
      complete: true,
      owner: 'somebody of before',
    });
    await expect(stale).rejects.toThrow(LeaseLost);
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
  });

  test('an answer of /me that comes after the connection has ended changes nothing', async () => {
    const { connectionId, kept, other } = await reader();
    await stage.store.connections.end(connectionId, 'as a test');
    const unchanged = { gained: [], lost: [], readable: [] };
    expect(await stage.store.connections.setCompanies(connectionId, [], { complete: true })).toEqual(unchanged);
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
  });
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
    expect((await dispatched(...ids)).sort()).toEqual(ids.sort());
    expect(await dispatched(...ids)).toEqual([]);
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
    expect(await dispatched(...ids.slice(0, 2))).toHaveLength(2);
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
    expect((await dispatched(...ids)).sort()).toEqual(ids.sort());
  });

  test('assets continue with another connection when the first one can no longer read their company', async () => {
    const { companyId, first, second, ids } = await shared();
    await stage.admin.addCompany({ id: `${companyId}-2`, name: 'Another', userIds: [first.userId] });
    await stage.admin.setAccess(companyId, first.userId, false);
    await stage.sync(first.connectionId);
    await stage.handOver();
    expect(await owners(companyId)).toEqual([second.connectionId]);
    expect((await dispatched(...ids)).sort()).toEqual(ids.sort());
  });

  test('assets wait when all their connections have ended, and continue with the first that reconnects', async () => {
    const { companyId, first, second, ids } = await shared();
    await stage.store.connections.end(second.connectionId, 'as a test');
    await stage.store.connections.end(first.connectionId, 'as a test');
    expect(await dispatched(...ids)).toEqual([]);
    await connectAs(stage.mirror, second.userId);
    await stage.handOver();
    expect(await owners(companyId)).toEqual([second.connectionId]);
    expect((await dispatched(...ids)).sort()).toEqual(ids.sort());
  });

  test('assets of an ended connection get another one in batches, as there may be a million', async () => {
    const { companyId, first, second } = await shared(5);
    await stage.query(`UPDATE assets SET state = 'mirrored', next_at = NULL WHERE company_id = $1`, [companyId]);
    await stage.store.connections.end(first.connectionId, 'as a test');
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
      stage.store.connections.end(first.connectionId, 'as a test'),
      stage.store.connections.end(second.connectionId, 'as a test'),
    ]);
    const third = await stage.person();
    await stage.admin.setAccess(companyId, third.userId, true);
    await stage.sync(third.connectionId);
    await stage.handOver();
    expect(await owners(companyId)).toEqual([third.connectionId]);
    expect((await dispatched(...ids)).sort()).toEqual(ids.sort());
  });
});
