import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { applyFilters } from '../../src/filters/apply-filters.ts';
import type { FilterRule } from '../../src/floor/reasons.ts';
import { leaseOf } from '../../src/store/assets/leases.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';
import { ask } from '../support/database.ts';
import { newScene } from '../support/scene.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { workerOf } from '../support/worker.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

const patch = (connectionId: string, settings: object) =>
  stage.mirror.api('PATCH', `/connections/${connectionId}`, settings);
const rows = async (companyId: string) =>
  Object.fromEntries((await stage.assets(companyId)).map((asset) => [asset.id, asset]));
const excluded = (value: string, field: FilterRule['field'] = 'type'): FilterRule => ({
  list: 'exclude',
  field,
  value,
});
const skipped = (rule: FilterRule) => ({
  state: 'pending',
  skipped: true,
  reason: { code: 'skipped_by_filter', ...rule },
  nextAt: null,
  queuedAt: null,
});
const nothing = { companyIds: [], projectIds: [], assetTypes: [] };
const waiting = { state: 'pending', skipped: false, reason: null, nextAt: expect.any(Date) };

/** A company with a film and a document, listed. */
async function listed(settings: object = {}, more: Partial<SyncDeps> = {}) {
  const { companyId, connectionId } = await stage.company();
  await patch(connectionId, settings);
  const { id: projectId } = await stage.admin.addProject({ id: `${companyId}-p`, companyId, name: 'A project' });
  const [film] = await stage.upload(companyId, 1, { assetType: 'videos', projectId });
  const [text] = await stage.upload(companyId, 1);
  await stage.run(connectionId, more);
  await stage.sync(connectionId, 'full', {}, more);
  return { companyId, connectionId, projectId, film: film!, text: text! };
}

describe('filters and listings', () => {
  test('a skipped asset is recorded, and counts neither as new nor as outstanding', async () => {
    const { companyId, connectionId, film, text } = await listed({ exclude: { assetTypes: ['videos'] } });
    expect(await rows(companyId)).toMatchObject({ [film]: skipped(excluded('videos')), [text]: waiting });
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
    await patch(connectionId, { exclude: { assetTypes: ['documents'] } });
    await stage.run(connectionId);
    const all = await rows(companyId);
    expect(Object.keys(all).sort()).toEqual(ids.sort());
    for (const asset of Object.values(all)) expect(asset).toMatchObject(skipped(excluded('documents')));
  });

  test('a skipped company is not listed until its filter is removed', async () => {
    const { companyId, connectionId } = await stage.company();
    const [id] = await stage.upload(companyId);
    await patch(connectionId, { exclude: { companyIds: [companyId] } });
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ status: 'done', pages: 0, seen: 0 });
    expect(await stage.listings(companyId)).toBe(0);
    const scoped = await stage.sync(connectionId, 'full', { companyId });
    expect(scoped).toMatchObject({ status: 'failed', error: expect.stringContaining('skipped by a filter') });

    const { changed } = await patch(connectionId, { exclude: null });
    expect(changed).toMatchObject({ syncId: expect.any(String) });
    await stage.run(connectionId);
    expect(await rows(companyId)).toMatchObject({ [id!]: waiting });
  });

  test('a resync of a named asset that the filters skip fails with the rule', async () => {
    const { connectionId, film } = await listed({ include: { assetTypes: ['documents'] } });
    expect(await stage.sync(connectionId, 'full', { assetIds: [film] })).toMatchObject({
      status: 'failed',
      error: `asset ${film}: skipped by a filter: type videos is not included`,
    });
  });

  test('the next full sync mirrors what the environment no longer excludes', async () => {
    const { companyId, connectionId, film, text } = await listed(
      {},
      { filters: { includeTypes: [], excludeTypes: ['videos'] } },
    );
    expect(await rows(companyId)).toMatchObject({ [text]: waiting });
    await stage.sync(connectionId, 'full', {}, { filters: { includeTypes: [], excludeTypes: [] } });
    expect(await rows(companyId)).toMatchObject({ [film]: waiting, [text]: waiting });
  });

  test('a full sync marks a skipped asset as gone when it is deleted', async () => {
    const { companyId, connectionId, film } = await listed({ exclude: { assetTypes: ['videos'] } });
    await stage.admin.removeAsset(film);
    await stage.sync(connectionId, 'full');
    expect(await rows(companyId)).toMatchObject({ [film]: { state: 'gone', skipped: false } });
  });
});

describe('a change of filters', () => {
  test('narrower filters skip pending, queued and failed assets; wider ones make them due at once', async () => {
    const { companyId, connectionId, projectId, film } = await listed();
    const films = [film, ...(await stage.upload(companyId, 2, { assetType: 'videos' }))];
    await stage.sync(connectionId, 'full');
    const queued = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(queued).toEqual(expect.arrayContaining(films));
    const leased = (await stage.store.assets.take(films[1]!, 60_000))!;
    expect(leased.settings).toEqual({});
    await stage.store.assets.failed(leaseOf(leased), { code: 'error', text: 'as a test' });

    const narrowed = await patch(connectionId, { exclude: { assetTypes: ['videos'] } });
    expect(narrowed.changed).toEqual({ skipped: 3, unskipped: 0, unknown: nothing, syncId: null });
    expect(await rows(companyId)).toMatchObject(
      Object.fromEntries(films.map((id) => [id, skipped(excluded('videos'))])),
    );
    expect(await stage.store.assets.take(film, 60_000)).toBeUndefined();

    const renamed = await patch(connectionId, { exclude: { assetTypes: [], projectIds: [projectId] } });
    expect(renamed.changed).toEqual({ skipped: 1, unskipped: 2, unknown: nothing, syncId: expect.any(String) });
    expect(await rows(companyId)).toMatchObject({
      [film]: skipped(excluded(projectId, 'project')),
      [films[1]!]: waiting,
    });

    const widened = await patch(connectionId, { exclude: null });
    expect(widened.changed).toEqual({ skipped: 0, unskipped: 1, unknown: nothing, syncId: renamed.changed.syncId });
    const all = await rows(companyId);
    for (const id of films) expect(all[id]).toMatchObject({ ...waiting, attempts: 0 });
    const due = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(due).toEqual(expect.arrayContaining(films));
  });

  test('a change of filters that was applied in part is completed', async () => {
    const { companyId, connectionId, film } = await listed();
    await stage.query(`UPDATE connections SET settings = '{"exclude": {"assetTypes": ["videos"]}}', filters_pending = true
      WHERE id = '${connectionId}'`);
    expect(await stage.store.filters.pending(stage.deps.filters)).toEqual([connectionId]);
    // Earlier settings do not affect later ones.
    await stage.store.filters.applied(connectionId, {}, stage.deps.filters);
    expect(await stage.store.filters.pending(stage.deps.filters)).toEqual([connectionId]);
    await patch(connectionId, { exclude: { projectIds: ['p2'] }, force: true });
    expect(await stage.store.filters.pending(stage.deps.filters)).toEqual([]);
    expect(await rows(companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
  });

  test('an old process does not end a change of the default filters that a new process has begun', async () => {
    const { companyId, connectionId, film } = await listed();
    const { filters } = stage.store;
    const [old, changed] = [stage.deps.filters, { includeTypes: [], excludeTypes: ['videos'] }];
    const apply = (defaults: typeof old) =>
      applyFilters({ ...stage.deps, filters: defaults }, connectionId, new AbortController().signal);
    await filters.changeDefaults(changed);
    expect(await filters.pending(old)).toEqual([]);
    await apply(changed);
    expect(await filters.pending(changed)).not.toContain(connectionId);
    expect(await rows(companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
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
      `UPDATE connections SET settings = '{"exclude": {"assetTypes": ["videos"]}}', filters_pending = true`,
    );
    await until('the filter', async () => (await scene.mirror.asset(id)).skipped !== null);
  } finally {
    await scene.close();
  }
});

describe('a company that two connections read', () => {
  test('an asset that one connection skips is mirrored by another that does not', { tags: 'slow' }, async () => {
    const { companyId, connectionId: first, film, text } = await listed({ exclude: { assetTypes: ['videos'] } });
    expect(await rows(companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    const { connectionId: second } = await stage.person(companyId);
    await patch(second, { exclude: { assetTypes: ['documents'] } });
    await stage.run(second);
    const both = {
      [film]: { ...waiting, connectionId: second },
      [text]: { ...waiting, connectionId: first },
    };
    expect(await rows(companyId)).toMatchObject(both);
    await stage.sync(first, 'full');
    await stage.sync(second, 'full');
    expect(await rows(companyId)).toMatchObject(both);

    // First neither connection wants it; then the first one does again.
    expect(await patch(second, { exclude: { assetTypes: ['documents', 'videos'] } })).toMatchObject({
      changed: { skipped: 1 },
    });
    expect(await rows(companyId)).toMatchObject({ [film]: skipped(excluded('videos')) });
    expect(await patch(first, { exclude: null })).toMatchObject({ changed: { unskipped: 1 } });
    expect(await rows(companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });

    // The first one skips both: no connection wants the document, and the second one wants the film. That the film has failed
    // for the first one does not count for the second one.
    await patch(second, { exclude: { assetTypes: ['documents'] } });
    await stage.query(
      `UPDATE assets SET state = 'failed', next_at = NULL, attempts = 5, reason = '{"code": "no_file", "status": null}' WHERE id = $1`,
      [film],
    );
    expect(await patch(first, { include: { projectIds: ['nothing'] }, force: true })).toMatchObject({
      changed: { skipped: 1 },
    });
    expect(await rows(companyId)).toMatchObject({
      [film]: { ...waiting, connectionId: second, attempts: 0 },
      [text]: { ...skipped({ list: 'include', field: 'project', value: null }), connectionId: first },
    });
  });

  test('an asset that its connection skips when it is leased goes to another connection, with all its attempts', async () => {
    const { companyId, connectionId: first, film } = await listed();
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
    expect(await rows(companyId)).toMatchObject({
      [film]: { ...waiting, connectionId: second, attempts: 0, waits: 0 },
    });
    expect(await worker.work(film)).toMatchObject({ outcome: 'mirrored' });
    await worker.close();
  });

  test('what another connection has skipped meanwhile is mirrored after its own connection is resumed', async () => {
    const { companyId, connectionId: first, film } = await listed();
    const { connectionId: second } = await stage.person(companyId);
    await stage.run(second);
    await patch(second, { exclude: { assetTypes: ['videos'] } });
    await stage.mirror.api('POST', `/connections/${first}/pause`);
    await stage.store.connections.adopt(1000);
    const worker = workerOf(stage);
    expect(await worker.work(film)).toMatchObject({ outcome: 'skipped' });
    await worker.close();
    expect(await rows(companyId)).toMatchObject({ [film]: { ...skipped(excluded('videos')), connectionId: second } });
    await stage.mirror.api('POST', `/connections/${first}/resume`);
    expect(await stage.store.filters.pending(stage.deps.filters)).toContain(first);
    await applyFilters(stage.deps, first, new AbortController().signal);
    expect(await rows(companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });
  });

  test('an asset that two connections list at the same time is due if one of them does not skip it', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId: first } = await stage.company();
    const { connectionId: second } = await stage.person(companyId);
    await patch(first, { exclude: { assetTypes: ['documents'] } });
    const ids = await stage.upload(companyId, 120);
    await Promise.all([stage.sync(first, 'full'), stage.sync(second, 'full')]);
    const all = Object.values(await rows(companyId));
    expect(all).toHaveLength(ids.length);
    for (const asset of all) expect(asset).toMatchObject({ ...waiting, connectionId: second });
  });
});

describe('settings of a connection', () => {
  test('the API returns all settings of a connection, and names those that are its own', async () => {
    const { connectionId } = await stage.company();
    const limits = { holdMissing: { percent: 50, assets: 1 }, holdReplaced: { percent: 20, assets: 10 } };
    const defaults = {
      syncInterval: 365 * 24 * 3_600_000,
      include: nothing,
      exclude: nothing,
      concurrency: 128,
      bandwidth: null,
      bandwidthTimetable: null,
      ...limits,
      own: [],
    };
    expect((await stage.mirror.api('GET', `/connections/${connectionId}`)).settings).toEqual(defaults);
    const { settings, changed } = await patch(connectionId, {
      syncInterval: '15m',
      include: { assetTypes: ['videos', 'videos'] },
      concurrency: 2,
      bandwidth: '2MiB/s',
    });
    expect(changed).toEqual({ skipped: 0, unskipped: 0, unknown: nothing, syncId: null });
    expect(settings).toEqual({
      syncInterval: 900_000,
      include: { ...nothing, assetTypes: ['videos'] },
      exclude: nothing,
      concurrency: 2,
      bandwidth: 2 * 2 ** 20,
      bandwidthTimetable: null,
      ...limits,
      own: ['bandwidth', 'concurrency', 'include.assetTypes', 'syncInterval'],
    });
    const one = await patch(connectionId, { include: { companyIds: ['x'] }, concurrency: null, force: true });
    expect(one.settings).toMatchObject({
      include: { assetTypes: ['videos'], companyIds: ['x'] },
      concurrency: 128,
      own: expect.not.arrayContaining(['concurrency']),
    });
    await patch(connectionId, { include: { assetTypes: null, companyIds: null }, syncInterval: null, bandwidth: null });
    expect((await stage.mirror.api('GET', `/connections/${connectionId}`)).settings).toEqual(defaults);
    expect(await stage.events({ kind: 'connection.changed', connectionId })).toHaveLength(3);
  });

  test('unknown names in filters are reported, and saved with force', async () => {
    const { companyId, connectionId, projectId } = await listed();
    const known = { companyIds: [companyId], projectIds: [projectId], assetTypes: ['videos', 'documents'] };
    const slips = { companyIds: ['no-company'], projectIds: ['no-project'], assetTypes: ['film'] };
    expect((await patch(connectionId, { include: known, exclude: slips, force: true })).changed.unknown).toEqual(slips);
    const other = await stage.company();
    const companyIds = ['x', other.companyId, companyId];
    const { settings, changed } = await patch(other.connectionId, { include: { companyIds }, force: true });
    // The company of another connection is unknown to this one, too.
    expect(changed.unknown).toEqual({ ...nothing, companyIds: ['x', companyId] });
    expect(settings.include).toEqual({ ...nothing, companyIds });
  });

  test.each([
    [{ syncInterval: '5' }, 'syncInterval'],
    [{ syncInterval: '10ms' }, 'syncInterval'],
    [{ syncInterval: 1e12 }, 'syncInterval'],
    [{ concurrency: 0 }, 'concurrency'],
    [{ concurrency: 1001 }, 'concurrency'],
    [{ bandwidth: '20MiB' }, 'bandwidth'],
    [{ bandwidth: 'Mon-Fry 08:00-18:00 1MiB/s' }, 'bandwidth: expected a day or days .* in place of .*Mon-Fry'],
    [{ include: { types: ['x'] } }, 'include'],
    [{ include: { assetTypes: 'videos' } }, 'include.assetTypes'],
    [{ exclude: { companyIds: [''] } }, 'exclude.companyIds.0'],
    [{ speed: 1 }, 'speed'],
  ])('the settings %j are refused with the name of the field', async (body, field) => {
    const { connectionId } = await stage.company();
    await expect(patch(connectionId, body)).rejects.toThrow(new RegExp(`400 .*invalid_request.*${field}`));
  });

  test('settings of an unknown connection are refused', async () => {
    await expect(patch('nobody', { concurrency: 1 })).rejects.toThrow(/404 .*connection_not_found/);
  });
});
