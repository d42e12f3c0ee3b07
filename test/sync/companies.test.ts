import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { LeaseLost } from '../../src/floor/errors.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { byOperator } from '../support/reasons.ts';
import { longAgo, newStage, overlap, type Stage } from '../support/stage.ts';
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
    expect(await dispatched(stage, keptId, otherId)).toEqual([keptId]);

    const [hidden] = await stage.upload(other, 1, { uploadDate: longAgo - overlap });
    const [found] = await stage.upload(other, 1, { uploadDate: longAgo + 1 });
    await stage.admin.setAccess(other, userId, true);
    await stage.sync(connectionId);
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
    expect(await stage.ids(other)).toEqual([otherId, found].sort());
    expect(await stage.ids(other)).not.toContain(hidden);
    expect((await dispatched(stage, otherId, found!)).sort()).toEqual([otherId, found].sort());
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
      expect((await dispatched(stage, otherId, mirroredId)).sort()).toEqual([otherId, mirroredId].sort());
      expect(await stage.store.assets.get(mirroredId)).toMatchObject({ state: 'mirrored', recordKey: null });
    });

    test('a sync of one named asset moves it from an unreadable company to the only readable one', async () => {
      const { connectionId, kept, otherId } = await moved();
      const run = await stage.sync(connectionId, 'full', { assetIds: [otherId] });
      expect(run).toMatchObject({ status: 'done', error: null });
      expect(await stage.store.assets.get(otherId)).toMatchObject({ companyId: kept });
      expect(await dispatched(stage, otherId)).toEqual([otherId]);
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
      await stage.store.connections.end(first.connectionId, byOperator);
      await stage.sync(second.connectionId, 'full');
      expect(await stage.store.assets.get(first.otherId)).toMatchObject({
        companyId: kept,
        connectionId: second.connectionId,
      });
      expect(await dispatched(stage, first.otherId)).toEqual([first.otherId]);
    });
  });

  test('queued and leased assets of a company that left /me are not worked on until it is back', async () => {
    const { connectionId, userId, other, keptId, otherId } = await reader();
    const [second] = await stage.upload(other);
    await stage.sync(connectionId);
    expect(await dispatched(stage, keptId, otherId, second!)).toHaveLength(3);
    const leased = (await stage.store.assets.take(otherId, 60_000))!;
    await stage.admin.setAccess(other, userId, false);
    await stage.sync(connectionId);

    const lease = leaseOf(leased);
    expect(await stage.store.assets.renew(lease, 60_000)).toBe(false);
    expect(await stage.store.assets.failed(lease, { code: 'error', text: 'the library answered 404' })).toBe(false);
    for (const id of [otherId, second!]) {
      expect(await stage.store.assets.take(id, 60_000)).toBeUndefined();
      expect(await stage.store.assets.get(id)).toMatchObject({ state: 'pending', attempts: 0, queuedAt: null });
    }
    await stage.admin.setAccess(other, userId, true);
    await stage.sync(connectionId);
    expect(await dispatched(stage, otherId, second!)).toHaveLength(2);
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
    expect(run.error).toMatch(/\/me: .* company "x{100}" was skipped: id: expected an id of at most 1600 bytes/);
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
    await stage.store.connections.end(connectionId, byOperator);
    const unchanged = { gained: [], lost: [], readable: [] };
    expect(await stage.store.connections.setCompanies(connectionId, [], { complete: true })).toEqual(unchanged);
    expect((await readable(connectionId)).sort()).toEqual([kept, other].sort());
  });
});
