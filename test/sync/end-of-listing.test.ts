import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Limiter } from '../../src/pacing/adaptive-concurrency.ts';
import { createAccess } from '../../src/pacing/with-token.ts';
import { longAgo, newStage, type Stage } from '../support/stage.ts';

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

  /** A listing is given up after this many pages in a row without a new asset. */
  const idlePages = 200;

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
      const run = await stage.sync(connectionId);
      expect(run).toMatchObject({ status: 'failed', error: expect.stringMatching(/pages had no new asset/) });
      expect(run.error).toContain(endless);
      expect(await stage.listings(endless)).toBeLessThan(idlePages + 10);
      expect(await stage.highWaterMark(connectionId, endless)).toBeNull();
      expect(await stage.ids(next)).toEqual([found]);
    },
  );

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
    for (let i = 0; i < 6; i++) await stage.run(connectionId);
    expect(await stage.store.syncs.get(run)).toMatchObject({
      status: 'failed',
      error: { code: 'endless_listing', idlePages: expect.any(Number) },
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

  test('a sync that is interrupted after a doubtful listing still reports it', async () => {
    const { companyId, connectionId, userId } = await stage.company();
    const next = `${companyId}-next`;
    await stage.admin.addCompany({ id: next, name: 'next', userIds: [userId] });
    for (const mode of ['incremental', 'full'] as const) {
      await stage.admin.setFaults(
        {
          endpoint: 'assets',
          companyId,
          body: { assets: [{ id: `${companyId} a`, uploadDate: 1 }], nextCursor: 'one' },
        },
        { endpoint: 'assets', companyId: next, latency: 5000, status: 429, retryAfter: 60 },
      );
      const id = (await stage.store.syncs.request(connectionId, mode))!;
      expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
      expect((await stage.store.syncs.get(id))!.position[companyId]).toMatchObject({ done: true });
      await stage.admin.clearFaults();
      await stage.query('UPDATE connections SET delayed_until = NULL');
      await stage.run(connectionId);
      const error = { code: 'listing_incomplete', companyId, cursor: 'to_earlier_page' };
      expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', error });
    }
  });

  test('short waits in a row do not end a listing', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 150);
    await stage.admin.addFault({ endpoint: 'assets', companyId, skip: 1, times: 8, status: 429, retryAfter: 1 });
    const id = (await stage.store.syncs.request(connectionId, 'incremental'))!;
    for (let waits = 0; waits < 8; waits++) {
      expect(await stage.run(connectionId)).toMatchObject({ outcome: 'delayed' });
      await stage.query('UPDATE connections SET delayed_until = NULL');
    }
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'done', error: null, pages: 2, seen: 150 });
  });

  test('companies whose listing is answered with a wait for more than a day fail, and the others are listed', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId, userId } = await stage.company();
    const [refused, ...others] = ['a', 'b', 'c', 'd', 'e'].map((name) => `${companyId}-${name}`);
    for (const id of [refused!, ...others]) await stage.admin.addCompany({ id, name: id, userIds: [userId] });
    for (const id of others) await stage.upload(id, 150);
    const refusals = [companyId, refused!].map((id) => ({
      endpoint: 'assets' as const,
      companyId: id,
      status: 429,
      retryAfter: 3600,
    }));
    await stage.admin.setFaults(...refusals);
    const id = (await stage.store.syncs.request(connectionId, 'full'))!;
    const sync = async () => (await stage.store.syncs.get(id))!;
    const { store, tokens, client, log } = stage.mirror.service.context;
    for (let runs = 0; (await sync()).finishedAt === null; runs++) {
      expect(runs).toBeLessThan(70);
      // Each run is in another process.
      const withToken = createAccess(tokens, new Limiter({ store, log, perConnection: 8 }), client);
      await stage.run(connectionId, { withToken });
      await stage.query('UPDATE connections SET delayed_until = NULL');
    }
    const ended = await sync();
    expect(ended).toMatchObject({ status: 'failed', seen: others.length * 150, error: { code: 'several' } });
    for (const id of [companyId, refused!]) expect(JSON.stringify(ended.error)).toContain(`company ${id}`);
    for (const other of others) expect(await stage.ids(other)).toHaveLength(150);
    // The library allows it again.
    await stage.admin.clearFaults();
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', error: null });
  });

  test('a wait for each of several connections ends no listing of their company', async () => {
    const { companyId, connectionId } = await stage.company();
    const connections = [connectionId];
    for (let i = 0; i < 6; i++) connections.push((await stage.person(companyId)).connectionId);
    await stage.admin.addFault({ endpoint: 'assets', companyId, status: 429, retryAfter: 3600 });
    for (const each of connections) {
      const id = (await stage.store.syncs.request(each, 'full'))!;
      await stage.run(each);
      expect(await stage.store.syncs.get(id)).toMatchObject({ status: 'running' });
    }
  });

  test('after a doubtful listing, accepted missing assets are gone only if the library does not have them', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 15);
    await stage.sync(connectionId, 'full');
    for (const id of ids.slice(1, 12)) await stage.admin.removeAsset(id);
    await stage.admin.addFault({
      endpoint: 'assets',
      companyId,
      body: { assets: [{ id: ids[0], uploadDate: longAgo }], nextCursor: 'one' },
    });
    // Too many to be gone without an operator.
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ gone: 0 });
    const run = await stage.sync(connectionId, 'full', { acceptGone: true });
    expect(run).toMatchObject({ gone: 11, error: expect.stringContaining('leads back') });
  });
});
