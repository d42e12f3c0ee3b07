import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { longAgo, newStage, overlap, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

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

const states = async (companyId: string) =>
  Object.fromEntries((await stage.assets(companyId)).map(({ id, state }) => [id, state]));
const gone = async (companyId: string) =>
  (await stage.assets(companyId)).filter(({ state }) => state === 'gone').map(({ id }) => id);
const askedFor = async (ids: string[]) =>
  (await stage.admin.requests({ endpoint: 'asset' })).filter(({ assetId }) => ids.includes(assetId!)).length;

describe('an asset that is missing from a complete listing', () => {
  test('a full sync marks a missing asset as gone after the library confirms it; an incremental sync does not', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(ids[2]!);
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', gone: 0 });
    expect(await gone(companyId)).toEqual([]);

    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 1, changed: 0, error: null });
    expect(await gone(companyId)).toEqual([ids[2]]);
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
    expect(await gone(companyId)).toEqual([ids[0]]);
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
    expect(await gone(companyId)).toEqual([id]);
  });

  test('a missing asset that the library still serves is not marked as gone', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    const body = { assets: ids.slice(0, 2).map((id) => ({ id })), nextCursor: null };
    await stage.admin.addFault({ endpoint: 'assets', companyId, body });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 0, error: null });
    expect(await askedFor(ids)).toBe(1);
    expect(await gone(companyId)).toEqual([]);
  });

  test('a missing asset that cannot be requested keeps its state, and the sync fails with the error', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(ids[0]!);
    await stage.admin.addFault({ endpoint: 'asset', assetId: ids[0]!, status: 500 });
    const run = await stage.sync(connectionId, 'full');
    expect(run).toMatchObject({ status: 'failed', gone: 0, error: expect.stringContaining('500') });
    await stage.admin.clearFaults();
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', gone: 1 });
  });

  test('an asset whose listing is unreadable does not count as missing', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 4);
    await stage.sync(connectionId);
    await stage.admin.changeAsset(ids[0]!, { override: { size: 'large' } });
    await stage.admin.changeAsset(ids[1]!, { override: { id: 7 } });
    const run = await stage.sync(connectionId, 'full');
    expect(run).toMatchObject({ status: 'done', gone: 0 });
    expect(await gone(companyId)).toEqual([]);
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

describe('a listing that lacks half of the known assets', () => {
  async function halved(count = 6) {
    const { companyId, connectionId, userId } = await stage.company();
    const ids = await stage.upload(companyId, count);
    await stage.sync(connectionId);
    for (const id of ids.slice(0, count / 2)) await stage.admin.removeAsset(id);
    return { companyId, connectionId, userId, ids, lost: ids.slice(0, count / 2).sort() };
  }

  test('a listing that lacks half of the assets is held until an operator accepts it, and the error says how', async () => {
    const { companyId, connectionId, lost } = await halved();
    const run = await stage.sync(connectionId, 'full');
    const advice = `asset-mirror resync ${connectionId} --company ${companyId} --accept-gone`;
    expect(run).toMatchObject({ status: 'done', gone: 0, error: null, held: expect.stringContaining(advice) });
    expect(run.held).toMatch(/3 of 6 assets of company \S+ are missing in the library; none is marked as gone/);
    expect(await gone(companyId)).toEqual([]);
    expect(await askedFor(lost)).toBe(0);
    expect(await stage.events({ kind: 'company.held', connectionId })).toMatchObject([
      { data: { companyId, kind: 'missing', known: 6, count: 3, sample: lost } },
    ]);
    // A partial sync does not end it.
    await stage.sync(connectionId);
    const shown = async () =>
      (await stage.mirror.api('GET', `/connections/${connectionId}`)).companies.flatMap(
        (it: { held: object[] }) => it.held,
      );
    expect(await shown()).toMatchObject([{ kind: 'missing', known: 6, count: 3, sample: lost }]);
    await stage.sync(connectionId, 'full');
    expect(await stage.events({ kind: 'company.held', connectionId })).toHaveLength(1);

    const { syncId } = await stage.mirror.api('POST', `/connections/${connectionId}/resync`, {
      mode: 'full',
      companyId,
      acceptGone: true,
    });
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(syncId)).toMatchObject({ status: 'done', gone: 3, error: null });
    expect(await gone(companyId)).toEqual(lost);
    expect(await shown()).toEqual([]);
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ gone: 0, error: null, held: null });
    expect(await shown()).toEqual([]);
  });

  test('a held listing that is complete in the next sync has changed nothing', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 10);
    await stage.sync(connectionId);
    await stage.admin.addFault({ endpoint: 'assets', companyId, body: { assets: [], nextCursor: null } });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({
      gone: 0,
      held: expect.stringContaining('10 of 10'),
    });
    await stage.admin.clearFaults();
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ gone: 0, changed: 0, error: null, held: null });
    expect(Object.values(await states(companyId))).toEqual(ids.map(() => 'pending'));
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 9000);
  });

  test('accepting the missing assets of all companies ends the hold', async () => {
    const { connectionId } = await halved();
    await stage.sync(connectionId, 'full');
    expect(await stage.sync(connectionId, 'full', { acceptGone: true })).toMatchObject({ gone: 3, error: null });
    expect((await stage.store.connections.companies([connectionId]))[0]!.held).toEqual({});
  });

  test('accepting the missing assets of one company keeps the hold of another', async () => {
    const companies = [await stage.admin.addCompany({ name: 'one' }), await stage.admin.addCompany({ name: 'other' })];
    const { connectionId } = await stage.person(...companies.map(({ id }) => id));
    const all = [await stage.upload(companies[0]!.id, 4), await stage.upload(companies[1]!.id, 4)];
    await stage.sync(connectionId, 'full');
    for (const ids of all) for (const id of ids.slice(0, 2)) await stage.admin.removeAsset(id);
    const { held } = await stage.sync(connectionId, 'full');
    expect(held).toMatch(/2 of 4 assets of company \S+ are.*2 of 4 assets of company \S+ are/);
    const run = await stage.sync(connectionId, 'full', { companyId: companies[0]!.id, acceptGone: true });
    expect(run).toMatchObject({ gone: 2, error: null });
    const now = await stage.store.connections.companies([connectionId]);
    const kept = now.filter(({ held }) => held.missing).map(({ id }) => id);
    expect(kept).toEqual([companies[1]!.id]);
  });

  test('missing assets can be accepted only with a full sync of whole companies', async () => {
    const { connectionId } = await stage.company();
    const path = `/connections/${connectionId}/resync`;
    for (const more of [
      { mode: 'incremental' },
      { since: '2026-01-31T00:00:00Z' },
      { assetType: 'videos' },
      { projectId: 'p' },
    ]) {
      const asked = stage.mirror.api('POST', path, { mode: 'full', acceptGone: true, ...more });
      await expect(asked, JSON.stringify(more)).rejects.toThrow(/400.*need mode/);
    }
  });
});

describe('an interrupted full sync', () => {
  test('an interrupted full sync remembers the assets that it listed before', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    await stage.sync(connectionId);
    // One of each end of the listing.
    await stage.admin.removeAsset(ids[0]!);
    await stage.admin.removeAsset(ids[249]!);
    const broken = await stage.stopInTheMiddle({ companyId, connectionId }, 1, 'full');
    expect(broken).toMatchObject({ status: 'running', pages: 1 });
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(broken.id)).toMatchObject({ status: 'done', pages: 3, seen: 248, gone: 2 });
    expect(await gone(companyId)).toEqual([ids[0], ids[249]].sort());
    expect(await stage.rows('sightings')).toBe(0);
  });

  test('a full sync that is interrupted after its listing continues without listing again', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(ids[0]!);
    await stage.admin.addFault({ endpoint: 'asset', assetId: ids[0]!, latency: 60_000 });
    const id = (await stage.store.syncs.request(connectionId, 'full'))!;
    const stop = new AbortController();
    const running = stage.run(connectionId, {}, stop.signal);
    await until(
      'the asset to be asked for',
      async () => (await stage.store.syncs.get(id))?.position[companyId]?.listed,
    );
    stop.abort(new Error('stop'));
    await running;
    await stage.admin.clearFaults();
    const listings = await stage.listings(companyId);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.listings(companyId)).toBe(listings);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', gone: 1 });
  });

  test('a full sync that must wait while it confirms missing assets continues, and requests no asset twice', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 160);
    await stage.sync(connectionId);
    const removed = ids.slice(0, 70).toSorted();
    for (const id of removed) await stage.admin.removeAsset(id);
    await stage.admin.addFault({ endpoint: 'asset', skip: 60, retryAfter: 60 });
    const id = (await stage.store.syncs.request(connectionId, 'full'))!;
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
    expect(await gone(companyId)).toEqual(removed.slice(0, 50));
    await stage.admin.clearFaults();
    await stage.admin.clearRequests();
    await stage.query('UPDATE connections SET delayed_until = NULL');
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', gone: 70 });
    expect(await askedFor(removed.slice(0, 50))).toBe(0);
    expect(await askedFor(removed.slice(50))).toBe(20);
  });

  test('a full sync that was interrupted in a company that is lost since lists all pages of the next one', async () => {
    const { companyId, connectionId, userId } = await stage.company();
    const [missing] = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(missing!);
    await stage.admin.addFault({ endpoint: 'asset', assetId: missing!, latency: 60_000 });
    const id = (await stage.store.syncs.request(connectionId, 'full'))!;
    const position = async () => (await stage.store.syncs.get(id))!.position;
    const stopWhen = async (what: string, condition: () => Promise<boolean>) => {
      const stop = new AbortController();
      const running = stage.run(connectionId, {}, stop.signal);
      await until(what, condition);
      stop.abort(new Error('stop'));
      await running;
      await stage.admin.clearFaults();
    };
    await stopWhen('the first company to be listed', async () => (await position())[companyId]?.listed === true);

    const next = `${companyId}-next`;
    await stage.admin.addCompany({ id: next, name: 'next', userIds: [userId] });
    await stage.admin.setAccess(companyId, userId, false);
    const ids = await stage.upload(next, 150);
    await stage.admin.addFault({ endpoint: 'assets', companyId: next, skip: 1, latency: 60_000 });
    await stopWhen('a page of the next company', async () => (await position())[next] !== undefined);

    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect((await stage.ids(next)).toSorted()).toEqual(ids.toSorted());
  });

  test('an interrupted full sync of a connection that ends leaves no rows of listed assets', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 150);
    await stage.sync(connectionId);
    await stage.stopInTheMiddle({ companyId, connectionId }, 1, 'full');
    expect(await stage.rows('sightings')).toBe(1);
    await stage.store.connections.end(connectionId, 'as a test');
    expect(await stage.rows('sightings')).toBe(0);
  });

  test('a sync does not move the high-water mark past the time at which it began', async () => {
    // A page that comes late may show what the first one could not have. The library's clock is an hour behind.
    const { companyId, connectionId } = await stage.company();
    const began = Date.now() - 3_600_000;
    const page = (id: string, answered: number, uploadDate: number, nextCursor: string | null) => ({
      endpoint: 'assets' as const,
      companyId,
      times: 1,
      headers: { date: new Date(answered).toUTCString() },
      body: { assets: [{ id: `${companyId} ${id}`, uploadDate }], nextCursor },
    });
    await stage.admin.setFaults(page('first', began, began - 1000, 'more'), {
      ...page('second', began + 4000, began + 2500, null),
      skip: 1,
    });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', seen: 2 });
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(began - 1000);
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
    expect(await gone(companyId)).toEqual([]);

    const more = await stage.upload(companyId, 2, { uploadDate: longAgo + 3_600_000 });
    await stage.admin.setAccess(companyId, userId, true);
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 2 });
    expect(await states(companyId)).toEqual(Object.fromEntries([...ids, ...more].map((id) => [id, 'pending'])));
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

    await stage.store.connections.end(first.connectionId, 'as a test');
    await stage.handOver();
    await stage.admin.removeAsset(ids[1]!);
    expect(await stage.sync(second.connectionId, 'full')).toMatchObject({ gone: 1 });
    expect(await gone(companyId)).toEqual(ids.slice(0, 2).sort());
  });

  test('missing assets that get this connection while it judges others are judged by its next full sync', async () => {
    const { companyId, ...first } = await stage.company();
    const ids = await stage.upload(companyId, 10);
    await stage.sync(first.connectionId);
    const second = await stage.person(companyId);
    const own = await stage.upload(companyId, 10, { uploadDate: longAgo + overlap });
    await stage.sync(second.connectionId);
    await stage.store.connections.end(first.connectionId, 'as a test');
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
