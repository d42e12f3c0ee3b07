import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { renderReason } from '../../src/floor/reasons.ts';
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

describe('invalid answers', () => {
  test('of two entries of an asset on a page, the readable one counts', async () => {
    const { companyId, connectionId } = await stage.company();
    const [id] = await stage.upload(companyId);
    const entries = [
      { id, size: 5, uploadDate: 1, status: 'ready' },
      { id, size: 'large' },
    ];
    await stage.admin.setFaults({ endpoint: 'assets', companyId, body: { assets: entries, nextCursor: null } });
    await stage.sync(connectionId, 'full');
    expect(await stage.store.assets.get(id!)).toMatchObject({ state: 'pending', size: 5 });
  });

  test('an asset that breaks the schema fails with the name of its field, and the rest of the page is recorded', async () => {
    const { companyId, connectionId } = await stage.company();
    const [good] = await stage.upload(companyId);
    const [bad] = await stage.upload(companyId, 1, { override: { size: 'large' } });
    const run = await stage.sync(connectionId);
    expect(run).toMatchObject({ status: 'done', new: 2 });
    expect(run.error).toContain(`asset ${bad}: its listing cannot be read: size: `);
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
    expect(run.error).toMatch(/^asset without a readable id \("file 0"\): its listing cannot be read: id: /);
    const assets = await stage.assets(companyId);
    expect(assets.map(({ state, name }) => [state, name])).toEqual(odd.map(() => ['failed', 'file 0']));
    for (const { reason } of assets) expect(renderReason(reason!)).toMatch(/^its listing cannot be read: id: /);

    // Neither a partial sync nor a second full one changes that.
    expect(await stage.sync(connectionId, 'incremental', { since: Date.now() }, mirror)).toMatchObject({ error: null });
    expect(renderReason((await stage.store.connections.get(connectionId))!.lastError!)).toBe(run.error);
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
      expect(run.error).toBe(`asset ${bad}: its listing cannot be read: ${field}: expected at most 1000 bytes`);
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
    expect(run.error).toBe(
      'asset without a readable id ("long"): its listing cannot be read: id: expected an id of at most 1000 bytes',
    );
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
