import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { leaseOf } from '../../src/store/assets/leases.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';
import { newStage, type Stage } from '../support/stage.ts';

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
const skipped = (rule: string) => ({
  state: 'pending',
  skipped: rule,
  reason: { code: 'skipped_by_filter', rule },
  nextAt: null,
  queuedAt: null,
});
const nothing = { companyIds: [], projectIds: [], assetTypes: [] };
const waiting = { state: 'pending', skipped: null, reason: null, nextAt: expect.any(Date) };

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

describe('a listing', () => {
  test('records what the settings skip, and counts it as nothing new and nothing to be done', async () => {
    const { companyId, connectionId, film, text } = await listed({ exclude: { assetTypes: ['videos'] } });
    expect(await rows(companyId)).toMatchObject({ [film]: skipped('type videos'), [text]: waiting });
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

  test('goes by the settings as they are at each page', async () => {
    const { companyId, connectionId } = await stage.company();
    const ids = await stage.upload(companyId, 150);
    await stage.stopInTheMiddle({ companyId, connectionId }, 1);
    await patch(connectionId, { exclude: { assetTypes: ['documents'] } });
    await stage.run(connectionId);
    const all = await rows(companyId);
    expect(Object.keys(all).sort()).toEqual(ids.sort());
    expect(new Set(Object.values(all).map((asset) => asset.skipped))).toEqual(new Set(['type documents']));
  });

  test('of a skipped company is not requested, and is listed when the company is no longer skipped', async () => {
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

  test('an asset that was requested by name, and is skipped, is reported', async () => {
    const { connectionId, film } = await listed({ include: { assetTypes: ['documents'] } });
    expect(await stage.sync(connectionId, 'full', { assetIds: [film] })).toMatchObject({
      status: 'failed',
      error: `asset ${film}: skipped by a filter: type videos is not included`,
    });
  });

  test('assets that the environment no longer skips are mirrored after the next full sync', async () => {
    const { companyId, connectionId, film, text } = await listed({}, { excludeTypes: ['videos'] });
    expect(await rows(companyId)).toMatchObject({ [text]: waiting });
    await stage.sync(connectionId, 'full', {}, { excludeTypes: [] });
    expect(await rows(companyId)).toMatchObject({ [film]: waiting, [text]: waiting });
  });

  test('finds what is skipped gone, like anything else', async () => {
    const { companyId, connectionId, film } = await listed({ exclude: { assetTypes: ['videos'] } });
    await stage.admin.removeAsset(film);
    await stage.sync(connectionId, 'full');
    expect(await rows(companyId)).toMatchObject({ [film]: { state: 'gone', skipped: null } });
  });
});

describe('a change', () => {
  test('that narrows skips what waits, is queued or failed; that widens has all of it due at once', async () => {
    const { companyId, connectionId, projectId, film } = await listed();
    const films = [film, ...(await stage.upload(companyId, 2, { assetType: 'videos' }))];
    await stage.sync(connectionId, 'full');
    const queued = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(queued).toEqual(expect.arrayContaining(films));
    const held = (await stage.store.assets.take(films[1]!, 60_000))!;
    expect(held.settings).toEqual({});
    await stage.store.assets.failed(leaseOf(held), { code: 'error', text: 'as a test' });

    const narrowed = await patch(connectionId, { exclude: { assetTypes: ['videos'] } });
    expect(narrowed.changed).toEqual({ skipped: 3, unskipped: 0, unknown: nothing, syncId: null });
    expect(await rows(companyId)).toMatchObject(Object.fromEntries(films.map((id) => [id, skipped('type videos')])));
    expect(await stage.store.assets.take(film, 60_000)).toBeUndefined();

    const renamed = await patch(connectionId, { exclude: { assetTypes: [], projectIds: [projectId] } });
    expect(renamed.changed).toEqual({ skipped: 1, unskipped: 2, unknown: nothing, syncId: expect.any(String) });
    expect(await rows(companyId)).toMatchObject({ [film]: skipped(`project ${projectId}`), [films[1]!]: waiting });

    const widened = await patch(connectionId, { exclude: null });
    expect(widened.changed).toEqual({ skipped: 0, unskipped: 1, unknown: nothing, syncId: renamed.changed.syncId });
    const all = await rows(companyId);
    for (const id of films) expect(all[id]).toMatchObject({ ...waiting, attempts: 0 });
    const due = (await stage.store.assets.dispatch({ perConnection: 1000 }))!.map(({ id }) => id);
    expect(due).toEqual(expect.arrayContaining(films));
  });

  test('of which only the half was applied is gone on with', async () => {
    const { companyId, connectionId, film } = await listed();
    await stage.query(`UPDATE connections SET settings = '{"exclude": {"assetTypes": ["videos"]}}', filters_pending = true
      WHERE id = '${connectionId}'`);
    expect(await stage.store.filters.unsettled()).toEqual([connectionId]);
    // Earlier settings do not affect later ones.
    await stage.store.filters.settled(connectionId, {});
    expect(await stage.store.filters.unsettled()).toEqual([connectionId]);
    await patch(connectionId, { exclude: { projectIds: ['p2'] }, force: true });
    expect(await stage.store.filters.unsettled()).toEqual([]);
    expect(await rows(companyId)).toMatchObject({ [film]: skipped('type videos') });
  });
});

describe('a company that two connections read', () => {
  test('what the one skips, and the other wants, is mirrored by the other', async () => {
    const { companyId, connectionId: first, film, text } = await listed({ exclude: { assetTypes: ['videos'] } });
    expect(await rows(companyId)).toMatchObject({ [film]: skipped('type videos') });
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
    expect(await rows(companyId)).toMatchObject({ [film]: skipped('type videos') });
    expect(await patch(first, { exclude: null })).toMatchObject({ changed: { unskipped: 1 } });
    expect(await rows(companyId)).toMatchObject({ [film]: { ...waiting, connectionId: first } });

    // The first one skips both: no connection wants the document, and the second one wants the film.
    await patch(second, { exclude: { assetTypes: ['documents'] } });
    expect(await patch(first, { include: { projectIds: ['nothing'] }, force: true })).toMatchObject({
      changed: { skipped: 1 },
    });
    expect(await rows(companyId)).toMatchObject({
      [film]: { ...waiting, connectionId: second },
      [text]: { ...skipped('no project, and only some are included'), connectionId: first },
    });
  });

  test('both list it at once, and what one of them wants is due', async () => {
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
  test('are shown as they are in effect, with the names of its own', async () => {
    const { connectionId } = await stage.company();
    const defaults = {
      syncInterval: 365 * 24 * 3_600_000,
      include: nothing,
      exclude: nothing,
      concurrency: 4,
      bandwidth: null,
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
      own: ['bandwidth', 'concurrency', 'include.assetTypes', 'syncInterval'],
    });
    const one = await patch(connectionId, { include: { companyIds: ['x'] }, concurrency: null, force: true });
    expect(one.settings).toMatchObject({
      include: { assetTypes: ['videos'], companyIds: ['x'] },
      concurrency: 4,
      own: expect.not.arrayContaining(['concurrency']),
    });
    await patch(connectionId, { include: { assetTypes: null, companyIds: null }, syncInterval: null, bandwidth: null });
    expect((await stage.mirror.api('GET', `/connections/${connectionId}`)).settings).toEqual(defaults);
    expect(await stage.events({ kind: 'connection.changed', connectionId })).toHaveLength(3);
  });

  test('report unknown names, and are saved all the same', async () => {
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
    [{ include: { types: ['x'] } }, 'include'],
    [{ include: { assetTypes: 'videos' } }, 'include.assetTypes'],
    [{ exclude: { companyIds: [''] } }, 'exclude.companyIds.0'],
    [{ speed: 1 }, 'speed'],
  ])('%j is refused with the name of the field', async (body, field) => {
    const { connectionId } = await stage.company();
    await expect(patch(connectionId, body)).rejects.toThrow(new RegExp(`400 .*invalid_request.*${field}`));
  });

  test('of an unknown connection are answered with 404', async () => {
    await expect(patch('nobody', { concurrency: 1 })).rejects.toThrow(/404 .*connection_not_found/);
  });
});
