import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { applyFilters } from '../../src/filters/apply-filters.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import { ask } from '../support/database.ts';
import { newScene } from '../support/scene.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { workerOf } from '../support/worker.ts';
import { excluded, listed, nothing, patch, rows, skipped, waiting } from './filtered.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

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
    expect(Object.keys(all).sort()).toEqual(ids.sort());
    for (const asset of Object.values(all)) expect(asset).toMatchObject(skipped(excluded('documents')));
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
  test('narrower filters skip pending, queued and failed assets; wider ones make them due at once', async () => {
    const { companyId, connectionId, projectId, film } = await listed(stage);
    const films = [film, ...(await stage.upload(companyId, 2, { assetType: 'videos' }))];
    await stage.sync(connectionId, 'full');
    const queued = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(queued).toEqual(expect.arrayContaining(films));
    const leased = (await stage.store.assets.take(films[1]!, 60_000))!;
    expect(leased.settings).toEqual({});
    await stage.store.assets.failed(leaseOf(leased), { code: 'error', text: 'as a test' });

    const narrowed = await patch(stage, connectionId, { exclude: { assetTypes: ['videos'] } });
    expect(narrowed.changed).toEqual({ skipped: 3, unskipped: 0, unknown: nothing, syncId: null });
    expect(await rows(stage, companyId)).toMatchObject(
      Object.fromEntries(films.map((id) => [id, skipped(excluded('videos'))])),
    );
    expect(await stage.store.assets.take(film, 60_000)).toBeUndefined();

    const renamed = await patch(stage, connectionId, { exclude: { assetTypes: [], projectIds: [projectId] } });
    expect(renamed.changed).toEqual({ skipped: 1, unskipped: 2, unknown: nothing, syncId: expect.any(String) });
    expect(await rows(stage, companyId)).toMatchObject({
      [film]: skipped(excluded(projectId, 'project')),
      [films[1]!]: waiting,
    });

    const widened = await patch(stage, connectionId, { exclude: null });
    expect(widened.changed).toEqual({ skipped: 0, unskipped: 1, unknown: nothing, syncId: renamed.changed.syncId });
    const all = await rows(stage, companyId);
    for (const id of films) expect(all[id]).toMatchObject({ ...waiting, attempts: 0 });
    const due = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(due).toEqual(expect.arrayContaining(films));
  });

  test('a change of filters that was applied in part is completed', async () => {
    const { companyId, connectionId, film } = await listed(stage);
    await stage.query(`UPDATE connections SET settings = '{"exclude": {"assetTypes": ["videos"]}}', filters_requested = 1
      WHERE id = '${connectionId}'`);
    expect(await stage.store.filters.pending(stage.deps.filters)).toEqual([connectionId]);
    // Earlier settings do not affect later ones.
    await stage.store.filters.applied(connectionId, 0, stage.deps.filters);
    expect(await stage.store.filters.pending(stage.deps.filters)).toEqual([connectionId]);
    await patch(stage, connectionId, { exclude: { projectIds: ['p2'] }, force: true });
    expect(await stage.store.filters.pending(stage.deps.filters)).toEqual([]);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
  });

  test('an old process does not end a change of the default filters that a new process has begun', async () => {
    const { companyId, connectionId, film } = await listed(stage);
    const { filters } = stage.store;
    const [old, changed] = [stage.deps.filters, { includeTypes: [], excludeTypes: ['videos'] }];
    const apply = (defaults: typeof old) =>
      applyFilters({ ...stage.deps, filters: defaults }, connectionId, new AbortController().signal);
    await filters.changeDefaults(changed);
    expect(await filters.pending(old)).toEqual([]);
    await apply(changed);
    expect(await filters.pending(changed)).not.toContain(connectionId);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    // The old process has begun before.
    await apply(old);
    expect(await filters.pending(changed)).toContain(connectionId);
    await filters.changeDefaults(old);
    await apply(old);
  });
});

test('a running service completes a change of filters that another process has begun', { tags: 'slow' }, async () => {
  const scene = await newScene();
  try {
    const id = await scene.upload({ name: 'a.mp4', mimeType: 'video/mp4', assetType: 'videos' });
    await scene.admin.addFault({ endpoint: 'asset', assetId: id, status: 503 });
    await scene.resync({ mode: 'incremental' });
    await scene.mirror.assetIn(id, 'pending');
    await ask(
      scene.ground.environment.DATABASE_URL!,
      `UPDATE connections SET settings = '{"exclude": {"assetTypes": ["videos"]}}', filters_requested = 1`,
    );
    await until('the filter', async () => (await scene.mirror.asset(id)).skipped !== null);
  } finally {
    await scene.close();
  }
});

describe('a company that two connections read', () => {
  /** A film whose connection was paused. The one that continues with it skips videos, which a worker finds out with `skip`. */
  async function adoptedFilm() {
    const { companyId, connectionId: first, film } = await listed(stage);
    const { connectionId: second } = await stage.person(companyId);
    await stage.run(second);
    await patch(stage, second, { exclude: { assetTypes: ['videos'] } });
    await stage.mirror.api('POST', `/connections/${first}/pause`);
    await stage.store.connections.adopt(1000);
    const skip = async () => {
      const worker = workerOf(stage);
      expect(await worker.work(film)).toMatchObject({ outcome: 'skipped' });
      await worker.close();
    };
    return { companyId, first, second, film, skip };
  }

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
    expect(await patch(stage, second, { exclude: { assetTypes: ['documents', 'videos'] } })).toMatchObject({
      changed: { skipped: 1 },
    });
    expect(await rows(stage, companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    expect(await patch(stage, first, { exclude: null })).toMatchObject({ changed: { unskipped: 1 } });
    expect(await rows(stage, companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });

    // The first one skips both: no connection wants the document, and the second one wants the film. That the film has failed
    // for the first one does not count for the second one.
    await patch(stage, second, { exclude: { assetTypes: ['documents'] } });
    await stage.query(
      `UPDATE assets SET state = 'failed', next_at = NULL, attempts = 5, reason = '{"code": "no_file", "status": null}' WHERE id = $1`,
      [film],
    );
    expect(await patch(stage, first, { include: { projectIds: ['nothing'] }, force: true })).toMatchObject({
      changed: { skipped: 1 },
    });
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
      applyFilters: false,
    }));
    const worker = workerOf(stage);
    expect(await worker.work(film)).toMatchObject({ outcome: 'handed_over', reason: { code: 'skipped_by_filter' } });
    expect(await rows(stage, companyId)).toMatchObject({
      [film]: { ...waiting, connectionId: second, attempts: 0, waits: 0 },
    });
    expect(await worker.work(film)).toMatchObject({ outcome: 'mirrored' });
    await worker.close();
  });

  test('what another connection has skipped meanwhile is mirrored after its own connection is resumed', async () => {
    const { companyId, first, second, film, skip } = await adoptedFilm();
    await skip();
    expect(await rows(stage, companyId)).toMatchObject({
      [film]: { ...skipped(excluded('videos')), connectionId: second },
    });
    await stage.mirror.api('POST', `/connections/${first}/resume`);
    expect(await stage.store.filters.pending(stage.deps.filters)).toContain(first);
    await applyFilters(stage.deps, first, new AbortController().signal);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });
  });

  test('filters are applied again if a connection is resumed while they are applied', async () => {
    const { companyId, first, film, skip } = await adoptedFilm();
    // The assets of the page are read before the other connection skips one, and the connection is resumed.
    const page: typeof stage.store.filters.page = async (of) => {
      const read = await stage.store.filters.page(of);
      await skip();
      await stage.mirror.api('POST', `/connections/${first}/resume`);
      return read;
    };
    const store = { ...stage.store, filters: { ...stage.store.filters, page } };
    const { signal } = new AbortController();
    await applyFilters({ ...stage.deps, store }, first, signal);
    expect(await stage.store.filters.pending(stage.deps.filters)).toContain(first);
    await applyFilters(stage.deps, first, signal);
    expect(await stage.store.filters.pending(stage.deps.filters)).not.toContain(first);
    expect(await rows(stage, companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });
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
