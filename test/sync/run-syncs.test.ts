import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { renderReason } from '../../src/floor/reasons.ts';
import { runSyncs } from '../../src/sync/run-syncs.ts';
import { newHttpLine } from '../support/http-line.ts';
import { spawnMirror, startMirror } from '../support/mirror.ts';
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
    const query = vi.spyOn(pg.Client.prototype, 'query');
    const never = new AbortController().signal;
    expect(await runSyncs(stage.deps, connectionId, never, 'incremental')).toEqual({ outcome: 'done', done: 1 });
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
    const running = runSyncs(stage.deps, connectionId, stop.signal, 'full');
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
      const begin = () => runSyncs(stage.deps, connectionId, new AbortController().signal, 'incremental');
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

describe('the pages of a listing', () => {
  test.each([
    ['absent', 2],
    ['null', 2],
    ['empty', 2],
    // The last page is requested again, because its cursor may mean another page by now.
    ['repeat', 3],
  ] as const)('a listing ends where nextCursor is %s', async (nextCursor, pages) => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 101);
    await stage.admin.addFault({ endpoint: 'assets', companyId, nextCursor });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', seen: 101, pages, error: null });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 100_000);
  });

  test('a listing ends where its only page repeats its cursor', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId);
    await stage.admin.addFault({ endpoint: 'assets', companyId, nextCursor: 'repeat' });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', seen: 1, error: null });
  });

  /** The library answers with these pages, one after the other, for any request; then with the last one. */
  const answers = (companyId: string, pages: { ids: string[]; nextCursor: string | null }[]) =>
    stage.admin.setFaults(
      ...pages.map(({ ids, nextCursor }, i) => ({
        endpoint: 'assets' as const,
        companyId,
        skip: i,
        ...(i < pages.length - 1 && { times: 1 }),
        body: { assets: ids.map((id) => ({ id: `${companyId} ${id}`, uploadDate: longAgo })), nextCursor },
      })),
    );

  test.each([
    ['an empty page', [], null],
    ['the last page again', ['f', 'g'], null],
    ['an earlier page again', ['a', 'b'], expect.stringContaining('leads back')],
  ])('pages with the same cursor are followed until %s comes', async (_, last, error) => {
    const { companyId, connectionId } = await stage.company();
    const pages = [['a', 'b'], ['c', 'd'], ['e'], ['f', 'g'], last];
    await answers(
      companyId,
      pages.map((ids) => ({ ids, nextCursor: 'scroll' })),
    );
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 7, error });
    expect(await stage.ids(companyId)).toEqual([...'abcdefg'].map((id) => `${companyId} ${id}`));
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo);
  });

  test('a listing ends where the library refuses a repeated cursor, and the sync reports it', async () => {
    const { companyId, connectionId } = await stage.company();
    await answers(companyId, [
      { ids: ['a'], nextCursor: 'scroll' },
      { ids: ['b'], nextCursor: 'scroll' },
    ]);
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 2, status: 404 });
    expect(await stage.sync(connectionId)).toMatchObject({
      status: 'done',
      new: 2,
      error: expect.stringContaining('refused'),
    });
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo);
  });

  test('a listing with repeated assets and empty pages is followed to its end', async () => {
    const { companyId, connectionId } = await stage.company();
    const pages = [['a', 'b'], ['b', 'a'], ['b', 'c'], [], [], ['c', 'b'], ['d']];
    await answers(
      companyId,
      pages.map((ids, i) => ({ ids, nextCursor: i < pages.length - 1 ? `cursor ${i}` : null })),
    );
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 4, pages: 7, error: null });
  });

  /** So that a listing is given up soon. */
  const idlePages = 100;

  test.each([
    ['nothing', []],
    ['the same assets in another order', [...'abcdefghij']],
  ])(
    'an endless listing of %s is given up with a reason, and the next company is listed',
    { tags: 'slow' },
    async (_, ids) => {
      const companies = [await stage.company(), await stage.company()].map(({ companyId }) => companyId).sort();
      const [endless, next] = companies as [string, string];
      const { connectionId } = await stage.person(endless, next);
      const [found] = await stage.upload(next);
      const pages = Array.from({ length: idlePages + 10 }, (_, i) => ({
        ids: ids.toSorted(() => Math.random() - 0.5),
        nextCursor: `cursor ${i}`,
      }));
      await answers(endless, pages);
      const run = await stage.sync(connectionId, 'incremental', {}, { idlePages });
      expect(run).toMatchObject({ status: 'failed', error: expect.stringMatching(/pages had no new asset/) });
      expect(run.error).toContain(endless);
      expect(await stage.listings(endless)).toBeLessThan(idlePages + 10);
      expect(await stage.highWaterMark(connectionId, endless)).toBeNull();
      expect(await stage.ids(next)).toEqual([found]);
    },
  );

  test('an endless listing is given up early by later incremental syncs, until a listing ends', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId } = await stage.company();
    const endless = (...first: string[]) =>
      answers(
        companyId,
        Array.from({ length: idlePages + 10 }, (_, i) => ({
          ids: [...'abcdefghij', ...first].toSorted(() => Math.random() - 0.5),
          nextCursor: `cursor ${i}`,
        })),
      );
    /** Runs a sync, and counts its page requests. */
    const asked = async (mode: 'incremental' | 'full', run: object) => {
      const before = await stage.listings(companyId);
      expect(await stage.sync(connectionId, mode, {}, { idlePages })).toMatchObject(run);
      return (await stage.listings(companyId)) - before;
    };
    const failed = { status: 'failed', error: expect.stringMatching(/pages had no new asset/) };
    await endless();
    expect(await asked('incremental', failed)).toBeGreaterThan(idlePages);
    await endless('new');
    expect(await asked('incremental', { ...failed, new: 1 })).toBeLessThan(30);
    await endless();
    expect(await asked('full', failed)).toBeGreaterThan(idlePages);

    await stage.admin.clearFaults();
    await asked('incremental', { status: 'done', error: null });
    await endless();
    expect(await asked('incremental', failed)).toBeGreaterThan(idlePages);
  });

  test('an endless listing is given up although the library often interrupts it', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = [...'abcdefghij'].map((letter) => `${companyId} ${letter}`);
    await stage.admin.setFaults(
      ...Array.from({ length: 1.5 * idlePages }, (_, i) => ({
        endpoint: 'assets' as const,
        companyId,
        skip: i,
        ...(i < 1.5 * idlePages - 1 && { times: 1 }),
        // A temporary fault is retried three times.
        ...(i % 50 > 46
          ? { status: 500 }
          : {
              body: {
                assets: ids.toSorted(() => Math.random() - 0.5).map((id) => ({ id })),
                nextCursor: `cursor ${i}`,
              },
            }),
      })),
    );
    const run = (await stage.store.syncs.request(connectionId, 'incremental'))!;
    for (let i = 0; i < 3; i++) await stage.run(connectionId, { idlePages });
    expect(await stage.store.syncs.get(run)).toMatchObject({
      status: 'failed',
      error: expect.stringMatching(/pages had no new asset/),
    });
  });

  test('a listing ends where a cursor leads back to an earlier page, and the sync reports it', async () => {
    const { companyId, connectionId } = await stage.company();
    const page = (id: string, nextCursor: string) => ({ ids: [id], nextCursor });
    const round = [page('a', 'one'), page('b', 'two'), page('c', 'one'), page('b', 'two'), page('c', 'one')];
    // The second library ignores the cursor and always answers with the first page.
    for (const pages of [round, [page('a', 'one')]]) {
      await answers(companyId, pages);
      const run = await stage.sync(connectionId, 'full');
      expect(run).toMatchObject({ status: 'done', error: expect.stringContaining('leads back') });
    }
    expect(await stage.ids(companyId)).toEqual(['a', 'b', 'c'].map((id) => `${companyId} ${id}`));
  });

  test('an interrupted listing does not move the high-water mark, and continues at its cursor', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    const broken = await stage.stopInTheMiddle({ companyId, connectionId });
    expect(broken).toMatchObject({ status: 'running', pages: 1, seen: 100, error: null });
    expect(await stage.highWaterMark(connectionId, companyId)).toBeNull();
    expect(await stage.ids(companyId)).toEqual(ids.slice(150).sort());

    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(broken.id)).toMatchObject({ status: 'done', pages: 3, seen: 250, new: 250 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 249_000);
  });

  test('uploads during an interrupted listing are found by the next sync, and no other asset is missed', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.stopInTheMiddle({ companyId, connectionId });
    const late = await stage.upload(companyId, 120, { uploadDate: longAgo + 3_600_000 });
    await stage.run(connectionId);
    expect(await stage.ids(companyId)).toEqual(ids.toSorted());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 149_000);
    await stage.sync(connectionId);
    expect(await stage.ids(companyId)).toEqual([...ids, ...late].sort());
  });

  test('a listing that an error interrupts continues at its page', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, status: 500 });
    const id = (await stage.store.syncs.request(connectionId, 'incremental'))!;
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'interrupted' });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running', pages: 1 });
    // Without any progress it has failed: it may be only this company, and others must be listed.
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'failed', error: expect.stringContaining('500') });
    expect(await stage.highWaterMark(connectionId, companyId)).toBeNull();

    await stage.admin.clearFaults();
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', seen: 150, new: 50 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  /** Runs syncs whose pages are recorded by `record`, which gets the number of the page. */
  const runRecording = (connectionId: string, record: (page: number) => Promise<unknown>) => {
    const { store } = stage;
    let pages = 0;
    const recordPage: typeof store.syncs.recordPage = async (page) => {
      await record(++pages);
      return store.syncs.recordPage(page);
    };
    return stage.run(connectionId, { store: { ...store, syncs: { ...store.syncs, recordPage } } });
  };

  test('the next page is requested while a page is recorded', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    const requested = (pages: number) => async () => (await stage.listings(companyId)) === pages;
    await stage.store.syncs.request(connectionId, 'full');
    const run = await runRecording(connectionId, (page) => until('the next page', requested(Math.min(page + 1, 3))));
    expect(run).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a listing whose page cannot be recorded continues at that page, although the next one was requested', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 250);
    const id = (await stage.store.syncs.request(connectionId, 'full'))!;
    const run = await runRecording(connectionId, async (page) => {
      if (page < 2) return;
      await until('the next page', async () => (await stage.listings(companyId)) === 3);
      throw new Error('as a test');
    });
    expect(run).toMatchObject({ outcome: 'interrupted' });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running', pages: 1, seen: 100 });
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 3, seen: 250 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a listing begins again if the library no longer knows the cursor', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    const { id } = await stage.stopInTheMiddle({ companyId, connectionId });
    await stage.admin.addFault({ endpoint: 'assets', companyId, times: 1, status: 400 });
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 3, seen: 250, new: 150 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
  });

  test('a sync of a killed process is continued by another process', { tags: 'slow' }, async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150, { status: 'unavailable' });
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, latency: 60_000 });
    const worker = await spawnMirror(stage.ground, stage.library, 'worker');
    try {
      await until('the first page', async () => (await stage.ids(companyId)).length === 100);
    } finally {
      await worker.kill('SIGKILL');
    }
    await stage.admin.clearFaults();
    expect(await stage.run(connectionId)).toEqual({ outcome: 'busy', done: 0 });
    // Its lease has run out.
    await stage.query("UPDATE connections SET sync_until = now() - interval '1 second' WHERE id = $1", [connectionId]);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.ids(companyId)).toEqual(ids.sort());
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 149_000);
  });
});

describe('invalid answers', () => {
  test('an asset that breaks the schema fails with the name of its field, and the rest of the page is recorded', async () => {
    const { companyId, connectionId } = await stage.company();
    const [good] = await stage.upload(companyId);
    const [bad] = await stage.upload(companyId, 1, { override: { size: 'large' } });
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'done', new: 2 });
    expect(run.error).toContain(`asset ${bad}: size: `);
    const assets = await stage.assets(companyId);
    const problems = assets.map(({ id, state, reason }) => [id, state, reason && renderReason(reason).split(':')[1]]);
    expect(problems).toEqual(
      [
        [good!, 'pending', null],
        [bad!, 'failed', ' size'],
      ].toSorted(([a], [b]) => a!.localeCompare(b!)),
    );
    expect((await stage.mirror.api('GET', `/connections/${connectionId}`)).lastError).toContain('size');

    await stage.admin.changeAsset(bad!, { override: {} });
    await stage.sync(connectionId);
    expect(await stage.store.assets.get(bad!)).toMatchObject({ state: 'pending', reason: null });
    // A known asset keeps its state if its listing is unreadable.
    await stage.admin.changeAsset(good!, { override: { status: 7 } });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', error: expect.stringContaining('status') });
    expect(await stage.store.assets.get(good!)).toMatchObject({
      state: 'pending',
      reason: { code: 'unreadable_listing', problem: expect.stringMatching(/^status/) },
      name: 'file 0',
      size: expect.any(Number),
    });
  });

  test('an asset without a readable id is reported as long as it is listed', async () => {
    const { companyId, connectionId } = await stage.company();
    const odd = [7, null, '', 'a\u0000b', '..', 'x'.repeat(1001), '\ud800', {}];
    const ids: string[] = [];
    for (const id of odd) ids.push(...(await stage.upload(companyId, 1, { override: { id } })));
    await stage.upload(companyId, 1, { override: { id: 8, assetType: 'audio', name: 'skipped' } });
    const mirror = { filters: { includeTypes: [], excludeTypes: ['audio'] } };
    const run = await stage.sync(connectionId, 'full', {}, mirror);
    expect(run).toMatchObject({ status: 'done', seen: odd.length + 1, new: odd.length });
    expect(run.error).toMatch(/^asset without a readable id \("file 0"\): id: /);
    const assets = await stage.assets(companyId);
    expect(assets.map(({ state, name }) => [state, name])).toEqual(odd.map(() => ['failed', 'file 0']));
    for (const { reason } of assets) expect(renderReason(reason!)).toMatch(/^its listing cannot be read: id: /);

    // Neither a partial sync nor a second full one changes that.
    expect(await stage.sync(connectionId, 'incremental', { since: Date.now() }, mirror)).toMatchObject({ error: null });
    expect((await stage.store.connections.get(connectionId))!.lastError).toBe(run.error);
    expect(await stage.sync(connectionId, 'full', {}, mirror)).toMatchObject({ new: 0, changed: 0, error: run.error });

    // Repaired, or gone from the listing.
    await stage.admin.changeAsset(ids[0]!, { override: {} });
    for (const id of ids.slice(1)) await stage.admin.removeAsset(id);
    expect(await stage.sync(connectionId, 'full', {}, mirror)).toMatchObject({ new: 1, error: null });
    expect(await stage.ids(companyId)).toEqual([ids[0]]);
    expect((await stage.store.connections.get(connectionId))!.lastError).toBeNull();
  });

  /** Incompressible characters. */
  const random = (length: number) => randomBytes(length).toString('base64url').slice(0, length);

  test.each([{ projectId: random(3000) }, { assetType: random(3000) }])(
    'a value that is too long for an index is a problem of its asset only (%#)',
    async (override) => {
      const { companyId, connectionId } = await stage.company();
      const [before] = await stage.upload(companyId);
      const [bad] = await stage.upload(companyId, 1, { override });
      const [after] = await stage.upload(companyId, 1, { uploadDate: longAgo + 5 });
      const run = await stage.sync(connectionId);
      const [field] = Object.keys(override);
      expect(run).toMatchObject({ status: 'done', new: 3 });
      expect(run.error).toBe(`asset ${bad}: ${field}: expected at most 1000 bytes`);
      const states = await Promise.all(
        [before, bad, after].map(async (id) => (await stage.store.assets.get(id!))?.state),
      );
      expect(states).toEqual(['pending', 'failed', 'pending']);
      expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo + 5);
    },
  );

  test('ids and values of the maximum length are recorded', async () => {
    const { userId, connectionId } = await stage.company();
    const companyId = random(1600);
    const asset = { id: random(1000), projectId: random(1000), assetType: random(1000), name: random(1_000_000) };
    await stage.admin.setFaults(
      { endpoint: 'me', body: { user: { id: userId }, companies: [{ id: companyId, name: random(1_000_000) }] } },
      { endpoint: 'assets', status: 200, body: { assets: [{ ...asset, uploadDate: longAgo }] } },
    );
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', new: 1, error: null });
    expect(await stage.assets(companyId)).toMatchObject([asset]);
    expect(await stage.highWaterMark(connectionId, companyId)).toBe(longAgo);
  });

  test('an id that is too long is a problem of its asset only, in a company with a long id, too', async () => {
    const { userId, connectionId } = await stage.company();
    const companyId = random(1401);
    const uploads = [{ id: random(40) }, { id: random(1401), name: 'long' }, { id: random(41) }];
    const assets = uploads.map((asset, n) => ({ ...asset, uploadDate: longAgo + n }));
    await stage.admin.setFaults(
      { endpoint: 'me', body: { user: { id: userId }, companies: [{ id: companyId, name: 'k' }] } },
      { endpoint: 'assets', status: 200, body: { assets } },
    );
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'done', new: 3 });
    expect(run.error).toBe('asset without a readable id ("long"): id: expected an id of at most 1000 bytes');
    const states = Object.fromEntries((await stage.assets(companyId)).map(({ id, state }) => [id, state]));
    expect(states).toMatchObject({ [uploads[0]!.id]: 'pending', [uploads[2]!.id]: 'pending' });
    expect(Object.values(states).toSorted()).toEqual(['failed', 'pending', 'pending']);
  });

  test('a company whose id is too long is skipped, and the others are listed', async () => {
    const { companyId, userId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId);
    const companies = [
      { id: random(1601), name: 'k' },
      { id: companyId, name: 'l' },
    ];
    await stage.admin.addFault({ endpoint: 'me', body: { user: { id: userId }, companies } });
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'done', error: expect.stringContaining('was skipped') });
    expect(await stage.ids(companyId)).toEqual(ids);
  });

  test('a listing follows cursors that cannot be stored', async () => {
    const { companyId, connectionId } = await stage.company();
    const page = (id: string, nextCursor: string | null, rule: object) => ({
      endpoint: 'assets' as const,
      companyId,
      status: 200,
      body: `{"assets":[{"id":"${companyId} ${id}"}],"nextCursor":${nextCursor}}`,
      ...rule,
    });
    await stage.admin.setFaults(
      page('a', '"a\\u0000b"', { times: 1 }),
      page('b', '"\\ud800"', { skip: 1, times: 1 }),
      page('c', null, { skip: 2 }),
    );
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 3, error: null });
    expect(await stage.listings(companyId)).toBe(3);
  });

  test('long ids with unusual characters are accepted if they can be stored', async () => {
    const { companyId, connectionId } = await stage.company();
    const odd = [`${'ä'.repeat(500)}`, 'a\tb\n', 'unreadable', '../../etc', 'a b?c#d'];
    for (const id of odd) await stage.upload(companyId, 1, { override: { id } });
    expect(await stage.sync(connectionId)).toMatchObject({ new: odd.length, error: null });
    expect((await stage.ids(companyId)).toSorted()).toEqual(odd.toSorted());
  });

  test('a deeply nested unknown field is recorded up to a maximum depth', async () => {
    const { companyId, connectionId } = await stage.company();
    const nested = (depth: number) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`;
    const list = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    const ids = [`deep ${companyId}`, `flat ${companyId}`];
    const deep = `"deep":${nested(5000)},"list":${list(5000)},"fair":${nested(30)}`;
    const body = `{"assets":[{"id":"${ids[0]}",${deep}},{"id":"${ids[1]}"}],"nextCursor":null}`;
    await stage.admin.addFault({ endpoint: 'assets', companyId, status: 200, body });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 2, error: null });
    expect(await stage.ids(companyId)).toEqual(ids);
    expect((await stage.store.assets.get(ids[0]!))!.listed.fair).toEqual(JSON.parse(nested(30)));
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ seen: 2, changed: 0 });
  });

  test('a field that no decision depends on is recorded as received, whatever its type', async () => {
    const { companyId, connectionId } = await stage.company();
    const odd = { width: '1920', height: { px: 1080 }, duration: 'long', projectName: 5, tags: [{ name: 'one' }, 2] };
    const [id] = await stage.upload(companyId, 1, { override: odd });
    expect(await stage.sync(connectionId)).toMatchObject({ status: 'done', new: 1, error: null });
    expect(await stage.store.assets.get(id!)).toMatchObject({ state: 'pending', listed: odd });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ changed: 0 });
  });

  test('a sync reports a few broken assets and the number of the others', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 12, { override: { hasTranscript: 'yes' } });
    const { error } = await stage.sync(connectionId);
    expect(error).toMatch(/hasTranscript: .*; and 7 more$/);
  });

  test.each([
    ['assets', { nextCursor: null }],
    ['assets', { assets: 'none' }],
    ['nextCursor', { assets: [], nextCursor: 7 }],
    ['not JSON', '<html>'],
  ])('a page that breaks the schema (%s) fails its company; other companies are listed', async (field, body) => {
    const a = await stage.company();
    const b = await stage.company();
    const both = await stage.person(a.companyId, b.companyId);
    const ids = [await stage.upload(a.companyId), await stage.upload(b.companyId)];
    await stage.admin.addFault({ endpoint: 'assets', companyId: a.companyId, body });
    const run = await stage.sync(both.connectionId);
    expect(run.status).toBe('failed');
    expect(run.error).toContain(a.companyId);
    expect(run.error).toContain(field);
    expect(await stage.ids(a.companyId)).toEqual([]);
    expect(await stage.ids(b.companyId)).toEqual(ids[1]);
    expect(await stage.highWaterMark(both.connectionId, a.companyId)).toBeNull();
    expect(await stage.highWaterMark(both.connectionId, b.companyId)).toBe(longAgo);

    await stage.admin.clearFaults();
    await stage.sync(both.connectionId);
    expect(await stage.ids(a.companyId)).toEqual(ids[0]);
  });

  test('unknown fields, states and types are recorded, and are no change in the next sync', async () => {
    const { companyId, connectionId } = await stage.company();
    const override = {
      status: 'frozen',
      assetType: 'holograms',
      rating: { stars: [1, 2.5, -0, 1e300], by: null },
      'odd\u0000 \ud800 name': 'a\u0000b\udfff',
      name: 'n\u0000ame \ud83d',
    };
    const [id] = await stage.upload(companyId, 1, { override });
    await stage.sync(connectionId);
    expect(await stage.store.assets.get(id!)).toMatchObject({
      state: 'pending',
      assetType: 'holograms',
      name: 'name \ufffd',
      listed: { status: 'frozen', rating: { stars: [1, 2.5, 0, 1e300], by: null }, 'odd \ufffd name': 'ab\ufffd' },
    });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ seen: 1, new: 0, changed: 0 });
  });

  test('no record contains a signed link', async () => {
    const { companyId, connectionId } = await stage.company();
    const [id] = await stage.upload(companyId, 1, { thumbnail: true, mimeType: 'image/png' });
    await stage.sync(connectionId);
    expect(JSON.stringify(await stage.store.assets.get(id!))).not.toContain('http');
  });
});

describe('a resync by an operator', () => {
  test('a resync lists what the operator names, and moves the high-water mark only for a whole company', {
    tags: 'slow',
  }, async () => {
    const a = await stage.company();
    const b = await stage.company();
    const { connectionId } = await stage.person(a.companyId, b.companyId);
    const spring = (await stage.admin.addProject({ companyId: a.companyId, name: 'Spring' })).id;
    const [plain, inProject] = [
      ...(await stage.upload(a.companyId)),
      ...(await stage.upload(a.companyId, 1, { projectId: spring, uploadDate: longAgo + 1 })),
    ];
    const [video] = await stage.upload(a.companyId, 1, {
      projectId: spring,
      assetType: 'videos',
      uploadDate: longAgo + 2,
    });
    const [other] = await stage.upload(b.companyId, 1, { assetType: 'videos' });
    // Only later requests.
    await stage.store.syncs.request(connectionId, 'incremental');
    await stage.admin.addFault({ endpoint: 'me', status: 403 });
    await stage.run(connectionId);
    await stage.admin.clearFaults();

    const resync = async (request: object) => {
      const before = new Set([...(await stage.ids(a.companyId)), ...(await stage.ids(b.companyId))]);
      const { syncId } = await stage.mirror.api('POST', `/connections/${connectionId}/resync`, request);
      await stage.run(connectionId);
      const after = [...(await stage.ids(a.companyId)), ...(await stage.ids(b.companyId))];
      const run = (await stage.store.syncs.get(syncId))!;
      return { ...run, found: after.filter((id) => !before.has(id)) };
    };
    const marks = async () => [
      await stage.highWaterMark(connectionId, a.companyId),
      await stage.highWaterMark(connectionId, b.companyId),
    ];

    expect(
      await resync({ mode: 'full', projectId: spring, assetType: 'videos', companyId: a.companyId }),
    ).toMatchObject({
      status: 'done',
      pages: 1,
      found: [video],
    });
    expect(await resync({ mode: 'full', projectId: spring, companyId: a.companyId })).toMatchObject({
      found: [inProject],
    });
    expect(
      await resync({ mode: 'incremental', since: new Date(longAgo - 1).toISOString(), companyId: a.companyId }),
    ).toMatchObject({
      seen: 3,
      found: [plain],
    });
    expect(await marks()).toEqual([null, null]);
    expect(await resync({ mode: 'full', assetType: 'videos' })).toMatchObject({ seen: 2, found: [other] });
    expect(await marks()).toEqual([null, null]);
    expect(await resync({ mode: 'full', companyId: a.companyId })).toMatchObject({ seen: 3, found: [] });
    expect(await marks()).toEqual([longAgo + 2, null]);
  });

  test('a resync of named assets requests each and starts it afresh, and reports those that it cannot read', async () => {
    const { companyId, connectionId } = await stage.company();
    const [good, bad, gone] = await stage.upload(companyId, 3, { override: { size: 'x' } });
    await stage.sync(connectionId);
    await stage.admin.changeAsset(good!, { override: {} });
    await stage.admin.removeAsset(gone!);
    const run = await stage.sync(connectionId, 'full', { assetIds: [good!, bad!, gone!, 'nobody'] });
    expect(run.status).toBe('failed');
    expect(run.error).toContain(`read asset ${bad}: `);
    expect(run.error).toContain('asset.size');
    expect(run.error).toContain(`read asset ${gone}: the library answered 404`);
    expect(run.error).toContain('asset nobody: not in the database');
    const states = await Promise.all([good, bad, gone].map(async (id) => (await stage.store.assets.get(id!))?.state));
    expect(states).toEqual(['pending', 'failed', 'failed']);
  });

  test('a resync of named assets that must wait continues after the assets that it has requested', async () => {
    const { companyId, connectionId } = await stage.company();
    const assetIds = await stage.upload(companyId, 5);
    await stage.sync(connectionId);
    await stage.admin.addFault({ endpoint: 'asset', skip: 3, retryAfter: 60 });
    const id = (await stage.store.syncs.request(connectionId, 'full', { assetIds }))!;
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
    await stage.admin.clearFaults();
    await stage.admin.clearRequests();
    await stage.query('UPDATE connections SET delayed_until = NULL');
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', error: null });
    const asked = await stage.admin.requests({ endpoint: 'asset' });
    expect(asked.map(({ assetId }) => assetId)).toEqual(assetIds.slice(3));
  });

  test('a resync of the same thousand named assets is the same request', async () => {
    const { connectionId } = await stage.company();
    const assetIds = Array.from({ length: 1000 }, (_, i) => `asset-${i}-${Math.random().toString(36)}`);
    const first = await stage.store.syncs.request(connectionId, 'full', { assetIds });
    expect(await stage.store.syncs.request(connectionId, 'full', { assetIds })).toBe(first);
    expect(await stage.store.syncs.request(connectionId, 'full', { assetIds: assetIds.slice(1) })).not.toBe(first);
  });

  test('a resync of a project lists it in every company, and one company that knows it is enough', async () => {
    const a = await stage.company();
    const b = await stage.company();
    const both = await stage.person(a.companyId, b.companyId);
    await stage.run(both.connectionId);
    const { id: projectId } = await stage.admin.addProject({ companyId: b.companyId, name: 'Spring' });
    const ids = await stage.upload(b.companyId, 1, { projectId });
    await stage.admin.addFault({ endpoint: 'assets', companyId: a.companyId, status: 404 });
    const run = await stage.sync(both.connectionId, 'full', { projectId });
    expect(run).toMatchObject({ status: 'done', new: 1, error: null });
    expect(await stage.ids(b.companyId)).toEqual(ids);

    await stage.admin.addFault({ endpoint: 'assets', companyId: b.companyId, status: 404 });
    expect(await stage.sync(both.connectionId, 'full', { projectId })).toMatchObject({ status: 'failed' });

    await stage.admin.addFault({ endpoint: 'assets', companyId: b.companyId, status: 404 });
    const skipsA = { exclude: { companyIds: [a.companyId] } };
    await stage.store.connections.changeSettings(both.connectionId, {}, () => ({
      settings: skipsA,
      applyFilters: false,
    }));
    expect(await stage.sync(both.connectionId, 'full', { projectId })).toMatchObject({ status: 'failed' });
  });

  test('a resync of a company that the connection cannot read fails', async () => {
    const { connectionId } = await stage.company();
    const other = await stage.company();
    const run = await stage.sync(connectionId, 'full', { companyId: other.companyId });
    expect(run).toMatchObject({
      status: 'failed',
      pages: 0,
      error: `company ${other.companyId}: this connection cannot read it`,
    });
    expect(await stage.listings(other.companyId)).toBe(0);
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
      expect(connection).toMatchObject({ status: 'active', lastError: expect.stringMatching(/asked to wait/) });
      expect(connection!.delayedUntil!.getTime()).toBeGreaterThan(began + 3_590_000);

      // No request is sent for this connection before that.
      await stage.admin.clearRequests();
      await stage.admin.clearFaults();
      await stage.store.syncs.request(connectionId, 'full');
      expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 0 });
      expect(await stage.store.syncs.unattended()).not.toContain(connectionId);
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
    expect(await stage.store.connections.end(connectionId, 'as a test')).toBeDefined();
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

const backends = [
  { name: 'PostgreSQL', redis: undefined },
  ...(inject('redis') ? [{ name: 'Redis', redis: inject('redis') }] : []),
];

describe.each(backends)('syncs with queues in $name', ({ redis }) => {
  test('a connection has one running and at most one waiting sync, in any number of processes', {
    tags: 'slow',
  }, async () => {
    const own = await newStage({ redis });
    const line = await newHttpLine(own.library.apiUrl);
    const library = { ...own.library, apiUrl: line.endpoint };
    const workers = [
      await startMirror(own.ground, library, 'worker'),
      await startMirror(own.ground, library, 'worker'),
    ];
    try {
      const { companyId, connectionId } = await own.company();
      await until('the first run', async () => (await own.store.connections.get(connectionId))?.lastSyncAt);
      const before = await own.listings(companyId);
      const goOn = Promise.withResolvers<void>();
      line.set({ on: ({ url }) => url.includes(`/${companyId}/assets`), times: 1, after: goOn.promise });
      const path = `/connections/${connectionId}/resync`;
      const { syncId } = await own.mirror.api('POST', path, { mode: 'full' });
      await until('the run to ask', () => line.calls.some(({ met }) => met));
      const modes = Array.from({ length: 30 }, (_, i) => (i % 3 ? 'full' : 'incremental'));
      const asked = await Promise.all(modes.map((mode) => own.mirror.api('POST', path, { mode })));
      expect(await own.store.syncs.open()).toEqual({ running: 1, waiting: 1 });
      const ids = new Set(asked.map((answer) => answer.syncId));
      expect(ids.size).toBe(1);
      expect(ids).not.toContain(syncId);
      goOn.resolve();
      await until('both to end', async () => {
        const { running, waiting } = await own.store.syncs.open();
        expect(running).toBeLessThanOrEqual(1);
        return running + waiting === 0;
      });
      for (const id of [syncId, ...ids])
        expect(await own.store.syncs.get(id)).toMatchObject({ status: 'done', pages: 1 });
      expect(await own.listings(companyId)).toBe(before + 2);
    } finally {
      for (const worker of workers) await worker.stop();
      await line.close();
      await own.close();
    }
  });
});
