import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { runSyncs } from '../../src/sync/run-syncs.ts';
import { byOperator } from '../support/reasons.ts';
import { connectAs, longAgo, newStage, overlap, type Stage } from '../support/stage.ts';
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

describe('the requests of a sync', () => {
  test('an incremental sync lists what was uploaded after the high-water mark minus the overlap', async () => {
    const { companyId, connectionId } = await stage.company();
    const [newest] = await stage.upload(companyId);
    await stage.sync(connectionId);
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo);

    const [hidden] = await stage.upload(companyId, 1, { uploadDate: longAgo - overlap });
    const [within] = await stage.upload(companyId, 1, { uploadDate: longAgo - overlap + 1 });
    const [later] = await stage.upload(companyId, 1, { uploadDate: longAgo + 5 });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', seen: 3, new: 2, changed: 0, error: null });
    expect(await stage.ids(companyId)).toEqual([newest, within, later].sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 5);

    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', seen: 4, new: 1 });
    expect(await stage.ids(companyId)).toContain(hidden);
  });

  test('a sync without changes takes two requests and eight statements, and is recorded', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 3);
    await stage.sync(connectionId);
    await stage.admin.clearRequests();
    await stage.store.syncs.request(connectionId, 'incremental');
    const query = vi.spyOn(pg.Client.prototype, 'query');
    const never = new AbortController().signal;
    expect(await runSyncs(stage.deps, connectionId, never)).toEqual({ outcome: 'done', done: 1 });
    const calls = query.mock.calls as unknown as ([string, unknown[]?] | [{ text: string; values: unknown[] }])[];
    const said = calls.map(([statement, values], i) => ({
      client: query.mock.contexts[i],
      ...(typeof statement === 'string' ? { text: statement, values } : statement),
    }));
    query.mockRestore();
    const [run] = await stage.store.syncs.search({ connectionId, limit: 1 });
    expect(run).toMatchObject({ status: 'done', mode: 'incremental', pages: 1, seen: 3, new: 0, changed: 0 });
    const ofRun = said.filter(({ values }) => values?.includes(connectionId) || values?.includes(run!.id));
    // Each BEGIN comes before a statement of the sync on the same database connection, and has its COMMIT.
    const begins = said.filter(({ text, client }, i) => {
      const next = said.slice(i + 1).find((other) => other.client === client);
      return text === 'begin' && next && ofRun.includes(next);
    });
    expect(begins).toHaveLength(2);
    expect(ofRun.map(({ text }) => text.trim())).toHaveLength(4);
    expect(await stage.admin.requests()).toHaveLength(2);
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 2000);
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ syncOwner: null, syncUntil: null });
  });

  test.each([
    ['four', {}, 4],
    ['no more than the connection may have assets at once', { concurrency: 2 }, 2],
  ])('companies of a connection are listed at the same time: %s', { tags: 'slow' }, async (_, settings, atOnce) => {
    const companies = await Promise.all(Array.from({ length: 6 }, () => stage.company()));
    const ids = companies.map(({ companyId }) => companyId);
    const { connectionId } = await stage.person(...ids);
    await stage.mirror.api('PATCH', `/connections/${connectionId}`, settings);
    for (const companyId of ids) await stage.upload(companyId, 2);
    await stage.admin.addFault({ endpoint: 'assets', latency: 60_000 });
    await stage.admin.clearRequests();
    const stop = new AbortController();
    await stage.store.syncs.request(connectionId, 'full');
    const running = runSyncs(stage.deps, connectionId, stop.signal);
    const asked = async () => (await stage.admin.requests({ endpoint: 'assets' })).length;
    await until('listings to begin', async () => (await asked()) >= atOnce);
    stop.abort(new Error('stop'));
    expect(await running).toMatchObject({ outcome: 'handed_back' });
    expect(await asked()).toBe(atOnce);

    await stage.admin.clearFaults();
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    for (const companyId of ids) expect(await stage.ids(companyId)).toHaveLength(2);
  });

  describe('a sync of several companies without changes', () => {
    /** Somebody who reads two companies, each with a mark that its listing will move. */
    async function twoCompanies() {
      const companies = [await stage.company(), await stage.company()].map(({ companyId }) => companyId).sort();
      const [first, second] = companies as [string, string];
      const { connectionId, userId } = await stage.person(first, second);
      for (const companyId of companies) await stage.upload(companyId, 2);
      await stage.sync(connectionId);
      await stage.query('UPDATE access SET high_water_mark = $2 WHERE connection_id = $1', [connectionId, longAgo]);
      const marks = () => Promise.all(companies.map((companyId) => stage.highWaterMark(connectionId, companyId)));
      const begin = async () => {
        await stage.store.syncs.request(connectionId, 'incremental');
        return runSyncs(stage.deps, connectionId, new AbortController().signal);
      };
      const last = async () => (await stage.store.syncs.search({ connectionId, limit: 1 }))[0];
      return { first, second, connectionId, userId, marks, begin, last };
    }

    test('a sync without changes moves the high-water mark of each company', async () => {
      const { marks, begin, last } = await twoCompanies();
      expect(await begin()).toEqual({ outcome: 'done', done: 1 });
      expect(await last()).toMatchObject({ status: 'done', pages: 2, seen: 4, new: 0, changed: 0, position: {} });
      expect(await marks()).toEqual([longAgo + 1000, longAgo + 1000]);
    });

    test('the high-water mark of an unchanged company moves although the next company has new assets', async () => {
      const { second, marks, begin, last } = await twoCompanies();
      await stage.upload(second, 1, { uploadDate: longAgo + 5000 });
      expect(await begin()).toEqual({ outcome: 'done', done: 1 });
      expect(await last()).toMatchObject({ status: 'done', pages: 2, seen: 5, new: 1 });
      expect(await marks()).toEqual([longAgo + 1000, longAgo + 5000]);
    });

    test('the high-water mark of an unchanged company moves although the next company cannot be listed', async () => {
      const { second, marks, begin, last } = await twoCompanies();
      await stage.admin.addFault({ endpoint: 'assets', companyId: second, status: 403 });
      expect(await begin()).toEqual({ outcome: 'done', done: 1 });
      expect(await last()).toMatchObject({ status: 'failed', pages: 1, seen: 2 });
      expect(await marks()).toEqual([longAgo + 1000, longAgo]);
    });

    test('a sync that another process has taken over moves no further high-water mark', async () => {
      const { first, second, connectionId, marks, begin } = await twoCompanies();
      await stage.admin.addFault({ endpoint: 'assets', companyId: second, latency: 60_000 });
      const running = begin();
      await until('the first to be listed', async () => {
        return (await stage.highWaterMark(connectionId, first)) === longAgo + 1000;
      });
      await stage.query("UPDATE connections SET sync_owner = 'another' WHERE id = $1", [connectionId]);
      // So that the lease is checked at once.
      await stage.query("SELECT pg_notify('asset_mirror', $1)", [JSON.stringify({ connectionId })]);
      expect(await running).toMatchObject({ outcome: 'handed_back' });
      expect(await marks()).toEqual([longAgo + 1000, longAgo]);
      await stage.query('UPDATE connections SET sync_owner = NULL, sync_until = NULL WHERE id = $1', [connectionId]);
      await stage.admin.clearFaults();
      expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
      expect(await marks()).toEqual([longAgo + 1000, longAgo + 1000]);
    });
  });

  test('a high-water mark never moves back, even if the newest asset is removed', async () => {
    const { companyId, connectionId } = await stage.company();
    const [first, second] = await stage.upload(companyId, 2);
    await stage.sync(connectionId);
    await stage.admin.removeAsset(second!);
    await stage.sync(connectionId, 'full');
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 1000);
    expect(await stage.ids(companyId)).toEqual([first, second].sort());
  });

  test('an empty company has no high-water mark, and its first upload is found, however old', async () => {
    const { companyId, connectionId } = await stage.company();
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', pages: 1, seen: 0 });
    expect(await stage.highWaterMark(connectionId, companyId)).toBeNull();
    const ids = await stage.upload(companyId, 1, { uploadDate: 1 });
    await stage.sync(connectionId);
    expect(await stage.ids(companyId)).toEqual(ids);
  });

  test('upload dates in the future or years ago do not hide later uploads', async () => {
    const { companyId, connectionId } = await stage.company();
    const year = 365 * 86_400_000;
    const odd = [
      ...(await stage.upload(companyId, 1, { uploadDate: Date.now() + year })),
      ...(await stage.upload(companyId, 1, { uploadDate: 0 })),
      ...(await stage.upload(companyId)),
    ];
    await stage.sync(connectionId);
    expect(await stage.ids(companyId)).toEqual(odd.toSorted());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo);

    const now = await stage.upload(companyId, 2, { uploadDate: Date.now() });
    await stage.sync(connectionId);
    expect(await stage.ids(companyId)).toEqual([...odd, ...now].sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBeLessThanOrEqual(Date.now());
  });

  test('all uploads of the same millisecond are found, across pages and syncs', async () => {
    const { companyId, connectionId } = await stage.company();
    const first = await stage.upload(companyId, 203, { uploadDate: longAgo });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', pages: 3, seen: 203, new: 203 });
    const more = await stage.upload(companyId, 2, { uploadDate: longAgo });
    expect(await stage.sync(connectionId)).toMatchObject({ new: 2 });
    expect(await stage.ids(companyId)).toEqual([...first, ...more].sort());
  });

  test('assets of skipped and unknown types are recorded, and mirrored when the filters include them', async () => {
    const { companyId, connectionId } = await stage.company();
    const [document] = await stage.upload(companyId, 1, { name: 'a document' });
    const [video] = await stage.upload(companyId, 1, { assetType: 'videos' });
    const [audio] = await stage.upload(companyId, 1, { assetType: 'audio' });
    const [hologram] = await stage.upload(companyId, 1, { override: { assetType: 'holograms' } });
    const wanted = async () =>
      (await stage.assets(companyId)).filter((asset) => !asset.skipped).map((asset) => asset.id);
    await stage.sync(
      connectionId,
      'full',
      {},
      { filters: { includeTypes: ['videos', 'audio'], excludeTypes: ['audio'] } },
    );
    expect(await wanted()).toEqual([video]);
    await stage.sync(connectionId, 'full', {}, { filters: { includeTypes: [], excludeTypes: ['documents'] } });
    expect(await wanted()).toEqual([video, audio, hologram].sort());
    await stage.sync(connectionId, 'full');
    expect(await wanted()).toEqual([document, video, audio, hologram].sort());
  });
});

describe('a library that asks the client to wait', () => {
  test.each([{ retryAfter: 3600 }, { status: 503, retryAfter: 3600 }])(
    'a sync that must wait makes its connection wait without further requests (%o)',
    { tags: 'slow' },
    async (fault) => {
      const { companyId, connectionId } = await stage.company();
      await stage.upload(companyId, 150);
      await stage.run(connectionId);
      await stage.upload(companyId, 1, { uploadDate: longAgo + 200_000 });
      await stage.admin.addFault({ endpoint: 'assets', companyId, ...fault });
      const began = Date.now();
      const id = (await stage.store.syncs.request(connectionId, 'incremental'))!;
      expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
      expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running', error: null });
      const connection = await stage.store.connections.get(connectionId);
      expect(connection).toMatchObject({ status: 'active', lastError: { code: 'asked_to_wait' } });
      expect(connection!.delayedUntil!.getTime()).toBeGreaterThan(began + 3_590_000);

      // No request is sent for this connection before that.
      await stage.admin.clearRequests();
      await stage.admin.clearFaults();
      await stage.store.syncs.request(connectionId, 'full');
      expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 0 });
      expect(await stage.store.syncs.unattended(0)).not.toContain(connectionId);
      const due = (await stage.store.assets.dispatch({ perConnection: 4 }))!;
      expect((await stage.ids(companyId)).filter((id) => due.some((asset) => asset.id === id))).toEqual([]);
      expect(await stage.admin.requests()).toEqual([]);
    },
  );

  test('a sync that had to wait continues when the time is over', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, times: 1, retryAfter: 0 });
    const id = (await stage.store.syncs.request(connectionId, 'incremental'))!;
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
    await until('the wait to be over', async () => (await stage.run(connectionId)).done === 1);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 2, seen: 150 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });
});

describe('a connection that ends during a sync', () => {
  test('a sync stops when its connection ends, and a reconnect begins a new one', async () => {
    const { companyId, connectionId, userId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, latency: 60_000 });
    const running = stage.run(connectionId);
    await until('the second page to be asked for', async () => (await stage.listings(companyId)) === 2);
    await until('the first page to be recorded', async () => (await stage.ids(companyId)).length === 100);
    expect(await stage.store.connections.end(connectionId, byOperator)).toBeDefined();
    expect(await running).toMatchObject({ outcome: 'handed_back' });
    await stage.admin.clearFaults();
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 0 });
    expect(await stage.store.syncs.request(connectionId, 'full')).toBeUndefined();

    expect(await connectAs(stage.mirror, userId)).toBe(connectionId);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a sync that finds its connection disconnected does not fail, and logs the end once', async () => {
    const { connectionId, userId } = await stage.company();
    await stage.admin.endConnections(userId);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'disconnected', done: 0 });
    expect(await stage.store.connections.get(connectionId)).toMatchObject({ status: 'disconnected', syncOwner: null });
    expect(
      stage.mirror.lines.filter((line) => line.connectionId === connectionId && line.msg === 'connection disconnected'),
    ).toHaveLength(1);
  });
});
