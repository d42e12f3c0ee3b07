import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { byOperator } from '../support/reasons.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { askedFor, gone } from './missing.ts';

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
    expect(await gone(stage, companyId)).toEqual([ids[0], ids[249]].sort());
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
    expect(await gone(stage, companyId)).toHaveLength(60);
    await stage.admin.clearFaults();
    await stage.admin.clearRequests();
    await stage.query('UPDATE connections SET delayed_until = NULL');
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', gone: 70 });
    expect(await askedFor(stage, removed)).toBe(10);
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
    await stage.store.connections.end(connectionId, byOperator);
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
