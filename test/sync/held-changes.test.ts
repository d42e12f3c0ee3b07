import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
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

/** Later than any upload, so that incremental syncs list it. */
const later = longAgo + 30 * 86_400_000;

/** As if workers had mirrored all assets of a company. */
const mirrorAll = (companyId: string) =>
  stage.query(
    `UPDATE assets SET state = 'mirrored', next_at = NULL, mirrored_at = now(), bytes = size, record_key = 'r',
       media = jsonb_build_object('key', id, 'bytes', size, 'variant', 'original', 'checksums', '{}'::jsonb, 'etag', NULL,
         'version', size || ':' || upload_date)
     WHERE company_id = $1 AND state = 'pending'`,
    [companyId],
  );

async function mirroredCompany(count: number) {
  const at = await stage.company();
  const ids = await stage.upload(at.companyId, count);
  await stage.sync(at.connectionId);
  await mirrorAll(at.companyId);
  return { ...at, ids };
}

let changes = 0;
/** Other bytes for each, and another date unless `date` is false. */
async function replace(ids: string[], { date = true } = {}): Promise<void> {
  for (const [i, id] of ids.entries()) {
    const text = 'x'.repeat(100 + ++changes);
    await stage.admin.changeAsset(id, { content: { text }, ...(date && { uploadDate: later + i * 1000 }) });
  }
}

const pending = async (companyId: string) =>
  (await stage.assets(companyId)).filter(({ state }) => state === 'pending').map(({ id }) => id);
const heldChanges = async (connectionId: string) => {
  const { companies } = await stage.mirror.api('GET', `/connections/${connectionId}`);
  return companies.flatMap(({ held }: { held: object[] }) => held);
};
const isOver = { status: 'done', error: null, held: null };

describe('a listing in which many mirrored files are others', () => {
  test('60 assets with other bytes and dates are held, and replaced once an operator accepts them', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(60);
    await replace(ids);
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'done', changed: 60, error: null });
    expect(run.held).toBe(
      `the library has other files for 60 of 60 mirrored assets of company ${companyId}; none is replaced. To accept it: ` +
        `asset-mirror resync ${connectionId} --company ${companyId} --accept-replaced`,
    );
    expect(await pending(companyId)).toEqual([]);
    const assets = await stage.assets(companyId);
    expect(assets.every(({ media, size, nextAt }) => media!.version.startsWith(`${size}:`) && nextAt === null)).toBe(
      true,
    );

    await stage.sync(connectionId, 'full');
    expect(await pending(companyId)).toEqual([]);
    const sample = [...ids].sort().slice(0, 10);
    expect(await stage.events({ kind: 'company.held', connectionId })).toMatchObject([
      { data: { companyId, kind: 'replaced', count: 60, known: 60, sample } },
    ]);
    expect(await heldChanges(connectionId)).toMatchObject([{ kind: 'replaced', count: 60, known: 60, sample }]);
    const shown = await stage.mirror.api('GET', `/connections/${connectionId}`);
    expect(shown).toMatchObject({ condition: { code: 'held' }, lastError: null, reason: null });
    const { syncs } = await stage.mirror.api('GET', `/syncs?connectionId=${connectionId}&limit=1`);
    const held = { code: 'changes_held', kind: 'replaced', count: 60, known: 60, connectionId, companyId };
    expect(syncs[0].reason).toEqual({ ...held, text: syncs[0].error });
    const { explanation } = await stage.mirror.api('GET', `/assets/${ids[0]}`);
    expect(explanation.join(' ')).toMatch(/has had another file for it since .*--accept-replaced/);

    const { syncId } = await stage.mirror.api('POST', `/connections/${connectionId}/resync`, {
      mode: 'full',
      companyId,
      acceptReplaced: true,
    });
    await stage.run(connectionId);
    expect(await stage.store.syncs.get(syncId)).toMatchObject(isOver);
    expect((await pending(companyId)).sort()).toEqual([...ids].sort());
    expect((await stage.assets(companyId))[0]!.uploadDate).toBeGreaterThanOrEqual(later);
    expect(await heldChanges(connectionId)).toEqual([]);
    // Accepted replacements do not count.
    await mirrorAll(companyId);
    await replace(ids.slice(0, 5));
    expect(await stage.sync(connectionId)).toMatchObject(isOver);
    expect(await pending(companyId)).toHaveLength(5);
  });

  test('an operator accepts the files that were set aside before, not those that the same sync finds', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(60);
    await replace(ids.slice(0, 20));
    expect((await stage.sync(connectionId)).held).toMatch(/20 of 60/);
    await replace(ids.slice(20, 50));
    const run = await stage.sync(connectionId, 'full', { companyId, acceptReplaced: true });
    expect(run.held).toMatch(/30 of 40/);
    expect((await pending(companyId)).sort()).toEqual(ids.slice(0, 20).sort());
    expect(await heldChanges(connectionId)).toMatchObject([{ kind: 'replaced', count: 30 }]);
  });

  test('up to a fifth, and up to 10 of a small company, are replaced when the listing ends', {
    tags: 'slow',
  }, async () => {
    const small = await mirroredCompany(10);
    await replace(small.ids);
    expect(await stage.sync(small.connectionId)).toMatchObject(isOver);
    expect(await pending(small.companyId)).toHaveLength(10);
    const large = await mirroredCompany(60);
    await replace(large.ids.slice(0, 12));
    expect(await stage.sync(large.connectionId)).toMatchObject(isOver);
    expect(await pending(large.companyId)).toHaveLength(12);
    const beyond = await mirroredCompany(60);
    await replace(beyond.ids.slice(0, 13));
    expect((await stage.sync(beyond.connectionId)).held).toMatch(/13 of 60/);
    expect(await pending(beyond.companyId)).toEqual([]);
  });

  test('a sync that is stopped between two pages keeps what it has set aside, and counts all pages', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(250);
    await replace(
      ids.filter((_, i) => i % 4 === 0),
      { date: false },
    );
    const stopped = await stage.stopInTheMiddle({ companyId, connectionId }, 1, 'full');
    expect(stopped).toMatchObject({ status: 'running', changed: 25 });
    expect(await pending(companyId)).toEqual([]);
    expect(await stage.run(connectionId)).toEqual({ outcome: 'done', done: 1 });
    expect(await stage.store.syncs.get(stopped.id)).toMatchObject({ held: { count: 63, known: 250 } });
    expect(await pending(companyId)).toEqual([]);
  });

  test('a few replaced files of a stopped sync are replaced when it has resumed and ended', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(150);
    await replace([ids[0]!, ids[149]!], { date: false });
    await stage.stopInTheMiddle({ companyId, connectionId }, 1, 'full');
    expect(await pending(companyId)).toEqual([]);
    await stage.run(connectionId);
    expect(await pending(companyId)).toHaveLength(2);
  });

  test('the replacements of several syncs count together for 24 hours', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(60);
    await replace(ids.slice(0, 8));
    await stage.sync(connectionId);
    await mirrorAll(companyId);
    await replace(ids.slice(8, 16));
    expect((await stage.sync(connectionId)).held).toMatch(/16 of 60/);
    expect(await pending(companyId)).toEqual([]);
    await stage.query(`UPDATE replacements SET released_at = now() - interval '25 hours' WHERE company_id = $1`, [
      companyId,
    ]);
    expect(await stage.sync(connectionId)).toMatchObject(isOver);
    expect((await pending(companyId)).sort()).toEqual(ids.slice(8, 16).sort());
    expect(await heldChanges(connectionId)).toEqual([]);
  });

  test('a company is no longer held when the library has the old files again', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(20);
    const before = await stage.assets(companyId);
    await replace(ids);
    await stage.sync(connectionId);
    for (const { id, size, uploadDate } of before) {
      await stage.admin.changeAsset(id, { override: { size, uploadDate } });
    }
    expect(await stage.sync(connectionId, 'full')).toMatchObject(isOver);
    expect(await heldChanges(connectionId)).toEqual([]);
    expect(await pending(companyId)).toEqual([]);
    expect(await stage.query('SELECT FROM replacements WHERE company_id = $1', [companyId])).toEqual([]);
  });

  test('a company that is skipped by a filter is no longer held', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(40);
    await replace(ids.slice(0, 20));
    for (const id of ids.slice(20)) await stage.admin.removeAsset(id);
    await stage.sync(connectionId, 'full');
    expect(await heldChanges(connectionId)).toMatchObject([{ kind: 'missing' }, { kind: 'replaced' }]);
    await stage.mirror.api('PATCH', `/connections/${connectionId}`, { exclude: { companyIds: [companyId] } });
    expect(await stage.sync(connectionId)).toMatchObject(isOver);
    expect(await heldChanges(connectionId)).toEqual([]);
    expect(await pending(companyId)).toEqual([]);
    await stage.mirror.api('PATCH', `/connections/${connectionId}`, { exclude: null });
    await stage.sync(connectionId, 'full');
    expect(await heldChanges(connectionId)).toMatchObject([{ kind: 'missing' }, { kind: 'replaced' }]);
  });

  test('a file that was held is fetched when its asset is no longer skipped by a filter', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(40);
    await replace(ids.slice(0, 20));
    await stage.sync(connectionId, 'full');
    expect(await heldChanges(connectionId)).toMatchObject([{ kind: 'replaced' }]);
    const path = `/connections/${connectionId}`;
    await stage.mirror.api('PATCH', path, { exclude: { assetTypes: ['documents'] } });
    expect(await stage.sync(connectionId, 'full')).toMatchObject(isOver);
    expect(await heldChanges(connectionId)).toEqual([]);
    await stage.mirror.api('PATCH', path, { exclude: null, holdReplaced: '90%,10' });
    await stage.sync(connectionId, 'full');
    expect((await pending(companyId)).sort()).toEqual(ids.slice(0, 20).sort());
  });

  test('new assets, changed names and other companies are not held up', async () => {
    const { companyId, connectionId, userId, ids } = await mirroredCompany(20);
    const other = await stage.admin.addCompany({ name: 'other' });
    await stage.admin.setAccess(other.id, userId, true);
    const [otherId] = await stage.upload(other.id, 1);
    await stage.sync(connectionId);
    await mirrorAll(other.id);
    await replace([...ids.slice(1), otherId!]);
    await stage.admin.changeAsset(ids[0]!, { name: 'another name' });
    const [added] = await stage.upload(companyId, 1, { uploadDate: later });
    await stage.sync(connectionId, 'full');
    expect(await pending(companyId)).toEqual([added]);
    expect(await pending(other.id)).toEqual([otherId]);
    const named = (await stage.store.assets.get(ids[0]!))!;
    expect(named).toMatchObject({ name: 'another name', state: 'mirrored' });
    expect(named.nextAt).not.toBeNull();
  });

  test('the limits above which a company is held can be changed for a connection', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(10);
    const path = `/connections/${connectionId}`;
    const { settings } = await stage.mirror.api('GET', path);
    expect(settings).toMatchObject({
      holdMissing: { percent: 50, assets: 1 },
      holdReplaced: { percent: 20, assets: 10 },
    });
    const changed = await stage.mirror.api('PATCH', path, { holdReplaced: '30%,2', holdMissing: '90%,0' });
    expect(changed.settings).toMatchObject({
      holdReplaced: { percent: 30, assets: 2 },
      own: ['holdMissing', 'holdReplaced'],
    });
    await replace(ids.slice(0, 4));
    expect((await stage.sync(connectionId)).held).toMatch(/4 of 10/);
    for (const id of ids.slice(4)) await stage.admin.removeAsset(id);
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ gone: 6 });
    await stage.mirror.api('PATCH', path, { holdReplaced: null });
    await stage.sync(connectionId);
    expect(await pending(companyId)).toHaveLength(4);
    await expect(stage.mirror.api('PATCH', path, { holdReplaced: '30' })).rejects.toThrow(/400.*percent and assets/);
  });

  test('an asset that was gone and is listed again with another file is set aside, too', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(12);
    await stage.query(`UPDATE assets SET state = 'gone' WHERE company_id = $1`, [companyId]);
    await replace(ids);
    expect((await stage.sync(connectionId)).held).toMatch(/12 of 12/);
    expect((await stage.assets(companyId)).every(({ state }) => state === 'mirrored')).toBe(true);
  });

  test('files that change once more after an operator has accepted them are judged again', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(12);
    await replace(ids);
    await stage.sync(connectionId);
    await stage.mirror.store.syncs.request(connectionId, 'full', { companyId, acceptReplaced: true });
    await replace(ids);
    expect(await stage.run(connectionId)).toMatchObject({ outcome: 'done' });
    expect(await pending(companyId)).toEqual([]);
    expect(await heldChanges(connectionId)).toMatchObject([{ count: 12 }]);
  });

  test('an asset that an operator names is replaced at once', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(12);
    await replace(ids);
    await stage.sync(connectionId);
    await stage.sync(connectionId, 'incremental', { assetIds: [ids[3]!] });
    expect(await pending(companyId)).toEqual([ids[3]]);
    expect((await stage.sync(connectionId)).held).toMatch(/11 of 11/);
  });
});

describe('two connections that read the same company', () => {
  test('two connections report a held company once, and either may accept it', async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(20);
    const other = await stage.person(companyId);
    await stage.sync(other.connectionId);
    await replace(ids);
    for (const id of [connectionId, other.connectionId, connectionId]) await stage.sync(id, 'full');
    expect(await pending(companyId)).toEqual([]);
    expect(await heldChanges(connectionId)).toMatchObject([{ count: 20 }]);
    expect(await heldChanges(other.connectionId)).toMatchObject([{ count: 20 }]);
    const events = await stage.events({ kind: 'company.held' });
    expect(events.filter(({ data }) => data.companyId === companyId)).toHaveLength(1);
    expect(await stage.sync(other.connectionId, 'full', { companyId, acceptReplaced: true })).toMatchObject(isOver);
    expect(await pending(companyId)).toHaveLength(20);
    expect(await heldChanges(connectionId)).toEqual([]);
  });

  test('a sync releases nothing of another one whose listing has not ended', { tags: 'slow' }, async () => {
    const { companyId, connectionId, ids } = await mirroredCompany(150);
    const other = await stage.person(companyId);
    await stage.sync(other.connectionId);
    await replace(ids.filter((_, i) => i >= 45 && i < 55).concat(ids.slice(0, 40)), { date: false });
    // The first page has 5 of them, and 45 are on the second.
    await stage.stopInTheMiddle({ companyId, connectionId }, 1, 'full');
    expect(await stage.sync(other.connectionId, 'incremental', {}, { overlap: 1 })).toMatchObject({
      ...isOver,
      seen: 1,
    });
    expect(await pending(companyId)).toEqual([]);
    await stage.run(connectionId);
    expect(await heldChanges(connectionId)).toMatchObject([{ kind: 'replaced', count: 50, known: 150 }]);
    expect(await pending(companyId)).toEqual([]);
  });
});
