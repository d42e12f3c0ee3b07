import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { dayMs } from '../../src/floor/units.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { byOperator } from '../support/reasons.ts';
import { connectAs, newStage, type Stage } from '../support/stage.ts';
import { workerOf } from '../support/worker.ts';
import { excluded, listed, nothing, patch, rows, skipped, waiting } from './filtered.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

/** A worker works on these assets, with this outcome. */
async function work(ids: string[], outcome: string): Promise<void> {
  const worker = workerOf(stage);
  for (const id of ids) expect(await worker.work(id)).toMatchObject({ outcome });
  await worker.close();
}

/** Requests full syncs that are due, as a worker does every second. */
const requestDue = () =>
  stage.store.syncs.requestDue({ interval: dayMs, intervalActive: dayMs, reconcileInterval: dayMs }, 1000);

/** Lets an asset fail that is on the queue. */
async function fail(id: string): Promise<void> {
  const leased = (await stage.store.assets.take(id, 60_000))!;
  await stage.store.assets.failed(leaseOf(leased), { code: 'error', text: 'as a test' });
}

describe('filters and listings', () => {
  test('a skipped asset is recorded, and counts neither as new nor as outstanding', async () => {
    const { companyId, connectionId, film, text } = await listed(stage, { exclude: { assetTypes: ['videos'] } });
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')), [text]: waiting });
    const { counts } = await stage.mirror.api('GET', `/connections/${connectionId}`);
    expect(counts).toMatchObject({ byState: { pending: 1 }, skipped: 1 });
    const ids = async (query: string) =>
      (await stage.mirror.api('GET', `/assets?companyId=${companyId}&${query}`)).assets.map(
        (a: { id: string }) => a.id,
      );
    expect(await ids('state=pending')).toEqual([text]);
    expect(await ids('skipped=true')).toEqual([film]);
    expect((await ids('')).sort()).toEqual([film, text].sort());
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ seen: 2, new: 0, changed: 0, error: null });
  });

  test('a listing applies the filters that are set when a page arrives', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.stopInTheMiddle({ companyId, connectionId }, 1);
    await patch(stage, connectionId, { exclude: { assetTypes: ['documents'] } });
    await stage.run(connectionId);
    const all = await rows(stage, companyId);
    expect(Object.keys(all).sort()).toEqual(ids.toSorted());
    // Workers apply the filters to the assets of the page before.
    for (const id of ids.slice(0, 50)) expect(all[id]).toMatchObject(skipped(excluded('documents')));
    for (const id of ids.slice(50)) expect(all[id]).toMatchObject(waiting);
  });

  test('a skipped company is not listed until its filter is removed', async () => {
    const { companyId, connectionId } = await stage.company();
    const [id] = await stage.upload(companyId);
    await patch(stage, connectionId, { exclude: { companyIds: [companyId] } });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', pages: 0, seen: 0 });
    expect(await stage.listings(companyId)).toBe(0);
    const scoped = await stage.sync(connectionId, 'full', { companyId });
    expect(scoped).toMatchObject({ status: 'failed', error: expect.stringContaining('skipped by a filter') });

    const { changed } = await patch(stage, connectionId, { exclude: null });
    expect(changed).toMatchObject({ syncId: expect.any(String) });
    await stage.run(connectionId);
    expect(await rows(stage, companyId)).toMatchObject({ [id!]: waiting });
  });

  test('a resync of a named asset that the filters skip fails with the rule', async () => {
    const { connectionId, film } = await listed(stage, { include: { assetTypes: ['documents'] } });
    expect(await stage.sync(connectionId, 'full', { assetIds: [film] })).toMatchObject({
      status: 'failed',
      error: `asset ${film}: skipped by a filter: type videos is not included`,
    });
  });

  test('the next full sync mirrors what the environment no longer excludes', async () => {
    const { companyId, connectionId, film, text } = await listed(
      stage,
      {},
      { filters: { includeTypes: [], excludeTypes: ['videos'] } },
    );
    expect(await rows(stage, companyId)).toMatchObject({ [text]: waiting });
    await stage.sync(connectionId, 'full', {}, { filters: { includeTypes: [], excludeTypes: [] } });
    expect(await rows(stage, companyId)).toMatchObject({ [film]: waiting, [text]: waiting });
  });

  test('a full sync marks a skipped asset as gone when it is deleted', async () => {
    const { companyId, connectionId, film } = await listed(stage, { exclude: { assetTypes: ['videos'] } });
    await stage.admin.removeAsset(film);
    await stage.sync(connectionId, 'full');
    expect(await rows(stage, companyId)).toMatchObject({ [film]: { state: 'gone', skipped: false } });
  });
});

describe('a change of filters', () => {
  test('narrower filters skip pending, queued and failed assets when they are due; wider ones make them due again', async () => {
    const { companyId, connectionId, projectId, film } = await listed(stage);
    const films = [film, ...(await stage.upload(companyId, 2, { assetType: 'videos' }))];
    await stage.sync(connectionId, 'full');
    const queued = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(queued).toEqual(expect.arrayContaining(films));
    await fail(films[1]!);

    const narrowed = await patch(stage, connectionId, { exclude: { assetTypes: ['videos'] } });
    expect(narrowed.changed).toEqual({ unknown: nothing, syncId: expect.any(String) });
    await stage.run(connectionId);
    expect(await rows(stage, companyId)).toMatchObject(Object.fromEntries(films.map((id) => [id, waiting])));
    await work(films, 'skipped');
    expect(await rows(stage, companyId)).toMatchObject(
      Object.fromEntries(films.map((id) => [id, skipped(excluded('videos'))])),
    );
    expect(await stage.store.assets.take(film, 60_000)).toBeUndefined();

    await patch(stage, connectionId, { exclude: { assetTypes: [], projectIds: [projectId] } });
    await stage.run(connectionId);
    expect(await rows(stage, companyId)).toMatchObject({
      [film]: skipped(excluded(projectId, 'project')),
      [films[1]!]: waiting,
    });

    await patch(stage, connectionId, { exclude: null });
    await stage.run(connectionId);
    const all = await rows(stage, companyId);
    for (const id of films) expect(all[id]).toMatchObject({ ...waiting, attempts: 0 });
    const due = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(due).toEqual(expect.arrayContaining(films));
  });

  test('a failed asset of a company that is skipped as a whole is skipped, too', async () => {
    const { companyId, connectionId, film } = await listed(stage);
    await stage.store.assets.dispatch({ perConnection: 1000 });
    await fail(film);
    await patch(stage, connectionId, { exclude: { companyIds: [companyId] } });
    const before = await stage.listings(companyId);
    await stage.run(connectionId);
    expect(await stage.listings(companyId)).toBe(before);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: waiting });
    await work([film], 'skipped');
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded(companyId, 'company')) });
  });

  test('a change during a full sync is applied to all assets by another one', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await patch(stage, connectionId, { exclude: { assetTypes: ['documents'] } });
    const running = await stage.stopInTheMiddle({ companyId, connectionId }, 1, 'full');
    const { changed } = await patch(stage, connectionId, { exclude: null });
    expect(changed.syncId).not.toBe(running.id);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 2 });
    expect(await rows(stage, companyId)).toMatchObject(Object.fromEntries(ids.map((id) => [id, waiting])));
  });

  test('a full sync of an old process applies the default filters of a process that started later', async () => {
    const [old, changed] = [
      { includeTypes: [], excludeTypes: ['videos'] },
      { includeTypes: [], excludeTypes: [] },
    ];
    const { filters, syncs } = stage.store;
    const { companyId, connectionId, film } = await listed(stage, {}, { filters: old });
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    expect(await filters.changeDefaults(old)).toBe(false);
    expect(await filters.changeDefaults(changed)).toBe(true);
    await requestDue();
    await stage.run(connectionId, { filters: old });
    expect(await syncs.search({ connectionId, limit: 1 })).toMatchObject([{ mode: 'full', status: 'done' }]);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: waiting });
    await stage.query(`DELETE FROM settings WHERE name = 'filters'`);
  });
});

describe('a company that two connections read', () => {
  type Left = { companyId: string; connectionId: string; userId: string };

  test.each<[string, (left: Left) => Promise<unknown>, (left: Left) => Promise<unknown>]>([
    [
      'is resumed',
      ({ connectionId }) => stage.mirror.api('POST', `/connections/${connectionId}/pause`),
      ({ connectionId }) => stage.mirror.api('POST', `/connections/${connectionId}/resume`),
    ],
    [
      'is connected again',
      ({ connectionId }) => stage.store.connections.end(connectionId, byOperator),
      ({ userId }) => connectAs(stage.mirror, userId),
    ],
    [
      'can read the company again',
      async ({ companyId, connectionId, userId }) => {
        await stage.admin.addCompany({ id: `${companyId}-2`, name: 'Another', userIds: [userId] });
        await stage.admin.setAccess(companyId, userId, false);
        await stage.sync(connectionId);
      },
      async ({ companyId, connectionId, userId }) => {
        await stage.admin.setAccess(companyId, userId, true);
        await stage.store.syncs.request(connectionId, 'incremental');
      },
    ],
  ])(
    'what another connection has skipped meanwhile is mirrored after its own connection %s',
    async (_, leave, back) => {
      const { film, ...first } = await listed(stage);
      const { companyId } = first;
      const { connectionId: second } = await stage.person(companyId);
      await patch(stage, second, { exclude: { assetTypes: ['videos'] } });
      await stage.run(second);
      await leave(first);
      await stage.handOver();
      await work([film], 'skipped');
      const skippedBySecond = { ...skipped(excluded('videos')), connectionId: second };
      expect(await rows(stage, companyId)).toMatchObject({ [film]: skippedBySecond });
      await back(first);
      await stage.run(first.connectionId);
      await requestDue();
      await stage.run(first.connectionId);
      expect(await rows(stage, companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first.connectionId } });
    },
  );

  test('an asset that one connection skips is mirrored by another that does not', { tags: 'slow' }, async () => {
    const { companyId, connectionId: first, film, text } = await listed(stage, { exclude: { assetTypes: ['videos'] } });
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    const { connectionId: second } = await stage.person(companyId);
    await patch(stage, second, { exclude: { assetTypes: ['documents'] } });
    await stage.run(second);
    const both = {
      [film]: { ...waiting, connectionId: second },
      [text]: { ...waiting, connectionId: first },
    };
    expect(await rows(stage, companyId)).toMatchObject(both);
    await stage.sync(first, 'full');
    await stage.sync(second, 'full');
    expect(await rows(stage, companyId)).toMatchObject(both);

    // First neither connection wants it; then the first one does again.
    await patch(stage, second, { exclude: { assetTypes: ['documents', 'videos'] } });
    await work([film], 'skipped');
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    await patch(stage, first, { exclude: null });
    await stage.run(first);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });

    // The first one skips both: no connection wants the document, and the second one wants the film. That the film has failed
    // for the first one does not count for the second one.
    await patch(stage, second, { exclude: { assetTypes: ['documents'] } });
    await stage.query(
      `UPDATE assets SET state = 'failed', next_at = NULL, attempts = 5, reason = '{"code": "no_file", "status": null}' WHERE id = $1`,
      [film],
    );
    await patch(stage, first, { include: { projectIds: ['nothing'] }, force: true });
    await stage.run(first);
    await work([film], 'handed_over');
    await work([text], 'skipped');
    expect(await rows(stage, companyId)).toMatchObject({
      [film]: { ...waiting, connectionId: second, attempts: 0 },
      [text]: { ...skipped({ list: 'include', field: 'project', value: null }), connectionId: first },
    });
  });

  test('an asset that its connection skips when it is leased goes to another connection, with all its attempts', async () => {
    const { companyId, connectionId: first, film } = await listed(stage);
    const { connectionId: second } = await stage.person(companyId);
    await stage.run(second);
    await stage.query('UPDATE assets SET attempts = 4, waits = 3, reason = $2 WHERE id = $1', [
      film,
      { code: 'no_link' },
    ]);
    // The worker is the first to apply the filter.
    await stage.mirror.store.connections.changeSettings(first, {}, () => ({
      settings: { exclude: { assetTypes: ['videos'] } },
    }));
    const worker = workerOf(stage);
    expect(await worker.work(film)).toMatchObject({ outcome: 'handed_over', reason: { code: 'skipped_by_filter' } });
    expect(await rows(stage, companyId)).toMatchObject({
      [film]: { ...waiting, connectionId: second, attempts: 0, waits: 0 },
    });
    expect(await worker.work(film)).toMatchObject({ outcome: 'mirrored' });
    await worker.close();
  });

  test('an asset that two connections list at the same time is due if one of them does not skip it', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId: first } = await stage.company();
    const { connectionId: second } = await stage.person(companyId);
    await patch(stage, first, { exclude: { assetTypes: ['documents'] } });
    const ids = await stage.upload(companyId, 120);
    await Promise.all([stage.sync(first, 'full'), stage.sync(second, 'full')]);
    const all = Object.values(await rows(stage, companyId));
    expect(all).toHaveLength(ids.length);
    for (const asset of all) expect(asset).toMatchObject({ ...waiting, connectionId: second });
  });
});
