import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { longAgo, newStage, type Stage } from '../support/stage.ts';
import { askedFor, gone, states } from './missing.ts';

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
    expect(await gone(stage, companyId)).toEqual([]);
    expect(await askedFor(stage, lost)).toBe(0);
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
    expect(await gone(stage, companyId)).toEqual(lost);
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
    expect(Object.values(await states(stage, companyId))).toEqual(ids.map(() => 'pending'));
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
