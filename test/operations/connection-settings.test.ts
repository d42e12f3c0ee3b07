import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { listed, nothing, patch } from '../filters/filtered.ts';
import { newStage, type Stage } from '../support/stage.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
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
    const { settings, changed } = await patch(stage, connectionId, {
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
    const one = await patch(stage, connectionId, { include: { companyIds: ['x'] }, concurrency: null, force: true });
    expect(one.settings).toMatchObject({
      include: { assetTypes: ['videos'], companyIds: ['x'] },
      concurrency: 128,
      own: expect.not.arrayContaining(['concurrency']),
    });
    await patch(stage, connectionId, {
      include: { assetTypes: null, companyIds: null },
      syncInterval: null,
      bandwidth: null,
    });
    expect((await stage.mirror.api('GET', `/connections/${connectionId}`)).settings).toEqual(defaults);
    expect(await stage.events({ kind: 'connection.changed', connectionId })).toHaveLength(3);
  });

  test('unknown names in filters are reported, and saved with force', async () => {
    const { companyId, connectionId, projectId } = await listed(stage);
    const known = { companyIds: [companyId], projectIds: [projectId], assetTypes: ['videos', 'documents'] };
    const slips = { companyIds: ['no-company'], projectIds: ['no-project'], assetTypes: ['film'] };
    expect((await patch(stage, connectionId, { include: known, exclude: slips, force: true })).changed.unknown).toEqual(
      slips,
    );
    const other = await stage.company();
    const companyIds = ['x', other.companyId, companyId];
    const { settings, changed } = await patch(stage, other.connectionId, { include: { companyIds }, force: true });
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
    await expect(patch(stage, connectionId, body)).rejects.toThrow(new RegExp(`400 .*invalid_request.*${field}`));
  });

  test('settings of an unknown connection are refused', async () => {
    await expect(patch(stage, 'nobody', { concurrency: 1 })).rejects.toThrow(/404 .*connection_not_found/);
  });
});
