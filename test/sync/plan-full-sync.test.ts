import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Asset, ListedAsset } from '../../src/store/database/schema.ts';
import { hashOf } from '../../src/store/removals/tombstones.ts';
import { kindOf, type PlanKind } from '../../src/sync/plan-full-sync.ts';
import { byOperator } from '../support/reasons.ts';
import { longAgo, newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

describe('the plan for one asset', () => {
  const listing = (change: Record<string, unknown> = {}): ListedAsset => {
    const listed = { id: 'a', size: 7, uploadDate: 1000, status: 'ready', ...change };
    const { size, uploadDate } = listed;
    return { id: 'a', projectId: null, assetType: null, name: null, size, uploadDate, listed };
  };
  const row = (state: Asset['state'], more: Partial<Asset> = {}) =>
    ({
      ...listing(),
      state,
      reason: null,
      media: null,
      skipped: false,
      transcriptState: 'none',
      thumbnailState: 'none',
      ...more,
    }) as Asset;
  const media = { key: 'k', bytes: 7, variant: 'original', checksums: {}, etag: null, version: 'v' } as const;
  const wanted = { highWaterMark: 1500, skipped: false, transcripts: true, thumbnails: true };
  const out = { ...wanted, skipped: true };

  test.each<[PlanKind, Asset | undefined, ListedAsset, typeof wanted]>([
    ['new', undefined, listing({ uploadDate: 2000 }), wanted],
    ['new', undefined, listing(), { ...wanted, highWaterMark: null as never }],
    ['missing', undefined, listing(), wanted],
    ['changed', row('mirrored', { media }), listing({ size: 8 }), wanted],
    ['waiting', row('pending'), listing(), wanted],
    ['waiting', row('failed'), listing(), wanted],
    ['waiting', row('pending', { skipped: true }), listing(), wanted],
    ['changed', row('pending', { media }), listing(), wanted],
    ['record', row('mirrored', { media }), listing({ name: 'x' }), wanted],
    ['same', row('mirrored', { media }), listing(), wanted],
    ['record', row('gone', { media, mirroredAt: new Date() }), listing(), wanted],
    ['changed', row('gone', { media }), listing(), wanted],
    ['waiting', row('gone'), listing(), wanted],
    ['processing', undefined, listing({ status: 'processing' }), wanted],
    ['processing', row('processing'), listing({ status: 'processing' }), wanted],
    ['unavailable', row('unavailable'), listing({ status: 'unavailable' }), wanted],
    [
      'unreadable',
      undefined,
      { ...listing(), problem: { code: 'unreadable_listing', problem: 'size: wrong' } },
      wanted,
    ],
    ['skipped', undefined, listing(), out],
    ['skipped', row('pending', { skipped: true }), listing(), out],
    ['same', row('mirrored', { media }), listing({ size: 8 }), out],
    ['same', row('unavailable', { media }), listing({ size: 8 }), out],
  ])('a plan counts an asset as %s (%#)', (kind, before, listed, options) => {
    expect(kindOf(before, listed, options)).toBe(kind);
  });
});

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

interface Line {
  progress?: { listed: number; waitsUntil: string | null };
  // biome-ignore lint/suspicious/noExplicitAny: tests say what they expect
  result?: any;
  error?: { detail: string };
}

async function ask(connectionId: string, options: { signal?: AbortSignal } = {}) {
  return fetch(`${stage.ground.publicUrl}/api/plan?connectionId=${connectionId}`, {
    headers: { authorization: 'Bearer the-token-of-the-operators' },
    ...options,
  });
}
async function planned(connectionId: string): Promise<{ lines: Line[]; result: Line['result'] }> {
  const response = await ask(connectionId);
  expect(response.headers.get('content-type')).toBe('application/x-ndjson');
  const lines: Line[] = (await response.text())
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  return { lines, result: lines.at(-1)!.result };
}

/** The database, without the changes by token refreshes and the adaptive limit. */
const records = async () =>
  Promise.all(
    ['assets', 'syncs', 'events', 'companies', 'access', 'sightings'].map((table) =>
      stage.query(`SELECT * FROM ${table} ORDER BY md5(${table}::text)`),
    ),
  );

describe('a plan', () => {
  test('a plan ends at a cursor that was used before, as a sync does, and counts each page once', async () => {
    const { companyId, connectionId } = await stage.company();
    const page = (id: string, nextCursor: string, rule: object) => ({
      endpoint: 'assets' as const,
      companyId,
      body: { assets: [{ id: `${companyId} ${id}`, uploadDate: longAgo }], nextCursor },
      ...rule,
    });
    const [first, second] = [page('a', 'one', { times: 1 }), page('b', 'two', { skip: 1, times: 1 })];
    // The last one repeats its own cursor; leads to the one before it; is the first again.
    for (const [rules, listed, problems] of [
      [[first, page('b', 'one', { skip: 1 })], 2, []],
      [[first, second, page('c', 'one', { skip: 2 })], 3, [expect.stringContaining('leads back')]],
      [[page('a', 'one', {})], 1, [expect.stringContaining('leads back')]],
    ] as const) {
      await stage.admin.setFaults(...rules);
      expect((await planned(connectionId)).result).toMatchObject({ listed, problems });
    }
    await stage.admin.clearFaults();
  });

  test('a plan names the companies that it cannot read', async () => {
    const { companyId, connectionId, userId } = await stage.company();
    await stage.upload(companyId);
    const companies = [
      { id: companyId, name: companyId },
      { id: 5, name: 'unreadable' },
    ];
    await stage.admin.addFault({
      endpoint: 'me',
      body: { user: { id: userId, name: 'x', email: 'x@example.com' }, companies },
    });
    const { result } = await planned(connectionId);
    expect(result).toMatchObject({
      listed: 1,
      problems: [expect.stringMatching(/^read \/me: .* company .* was skipped/)],
    });
    await stage.admin.clearFaults();
  });

  test('a plan ignores erased assets, as a sync does', async () => {
    const { companyId, connectionId } = await stage.company();
    const [erased] = await stage.upload(companyId, 3);
    await stage.query(
      `INSERT INTO tombstones (hash, erased_at, erased_by, reason) VALUES ($1, now(), 'ada', 'requested')`,
      [hashOf(erased!)],
    );
    expect((await planned(connectionId)).result.byKind.new.assets).toBe(2);
    await stage.run(connectionId);
    expect((await planned(connectionId)).result.byKind).toMatchObject({ new: { assets: 0 }, waiting: { assets: 2 } });
  });

  test('a plan counts assets by company, type and kind, and neither writes nor requests media', {
    tags: 'slow',
  }, async () => {
    const { companyId, connectionId, userId } = await stage.company();
    const other = `${companyId}-other`;
    await stage.admin.addCompany({ id: other, name: 'The other', userIds: [userId] });
    await stage.upload(companyId, 120, { content: { text: 'known' } });
    await stage.run(connectionId);
    await stage.upload(companyId, 2, { uploadDate: longAgo - 1000, content: { text: 'older' } });
    await stage.upload(companyId, 3, { uploadDate: Date.now(), content: { text: 'younger' } });
    await stage.upload(companyId, 1, { assetType: 'videos', mimeType: 'video/mp4', status: 'processing' });
    await stage.upload(companyId, 1, { status: 'unavailable' });
    await stage.upload(other, 4, { assetType: 'audio', content: { text: 'sound' } });
    await stage.mirror.api('PATCH', `/connections/${connectionId}`, {
      exclude: { assetTypes: ['audio'] },
      bandwidth: 100,
    });
    await stage.admin.clearRequests();
    const before = await records();

    const { result } = await planned(connectionId);
    expect(result).toMatchObject({
      connections: 1,
      pages: 3,
      listed: 131,
      byKind: {
        new: { assets: 3, bytes: 21 },
        missing: { assets: 2, bytes: 10 },
        waiting: { assets: 120, bytes: 600 },
        changed: { assets: 0, bytes: 0 },
        processing: { assets: 1 },
        unavailable: { assets: 1 },
        skipped: { assets: 4, bytes: 20 },
      },
      toMove: { assets: 125, bytes: 631 },
      time: { seconds: 6.31, bytesPerSecond: 100, from: 'limit' },
      problems: [],
      skippedCompanies: [],
    });
    expect(result.rows).toContainEqual({
      companyId: other,
      companyName: 'The other',
      type: 'audio',
      kind: 'skipped',
      assets: 4,
      bytes: 20,
    });
    expect(await records()).toEqual(before);
    const asked = new Set((await stage.admin.requests()).map(({ endpoint }) => endpoint));
    expect(asked).toEqual(new Set(['me', 'assets']));

    // The sync then finds what the plan showed.
    expect(await stage.sync(connectionId, 'full')).toMatchObject({ new: 7, seen: 131 });
  });

  test('a plan waits as long as the library asks, and reports it', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 1);
    await stage.admin.setFaults({ endpoint: 'assets', companyId, retryAfter: 1, times: 1 });
    const { lines, result } = await planned(connectionId);
    await stage.admin.clearFaults();
    expect(lines[0]!.progress!.waitsUntil).toEqual(expect.any(String));
    expect(result).toMatchObject({ listed: 1, problems: [] });
  });

  test('a plan reports what it could not list', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.admin.setFaults({ endpoint: 'assets', companyId, status: 403 });
    const { result } = await planned(connectionId);
    await stage.admin.clearFaults();
    expect(result.problems).toEqual([expect.stringMatching(new RegExp(`^company ${companyId} was not listed`))]);
  });

  test('a plan reports a connection whose tokens cannot be read, and does not wait for it', async () => {
    const { connectionId } = await stage.company();
    await stage.query(`UPDATE connections SET tokens = 'of another key' WHERE id = '${connectionId}'`);
    const { result } = await planned(connectionId);
    expect(result.problems).toEqual([expect.stringMatching(new RegExp(`^connection ${connectionId}: `))]);
  });

  test('a plan stops when its reader disconnects', async () => {
    const { companyId, connectionId } = await stage.company();
    await stage.upload(companyId, 1);
    const bodies = Array.from({ length: 500 }, (_, i) => ({
      endpoint: 'assets' as const,
      companyId,
      skip: i,
      times: 1,
      latency: 20,
      body: { assets: [{ id: `asset ${i}` }], nextCursor: `page ${i}` },
    }));
    await stage.admin.setFaults(...bodies);
    const gone = new AbortController();
    const response = await ask(connectionId, { signal: gone.signal });
    await response.body!.getReader().read();
    gone.abort();
    // Ten equal checks, each long enough for a page: the listing has stopped.
    let [last, same] = [-1, 0];
    await until('the listing to end', async () => {
      const now = await stage.listings(companyId);
      same = now === last ? same + 1 : 0;
      last = now;
      return same === 10;
    });
    expect(last).toBeLessThan(500);
    await stage.admin.clearFaults();
  });

  test('a plan of an unknown or ended connection is refused', async () => {
    expect((await ask('nobody')).status).toBe(404);
    const { connectionId } = await stage.company();
    await stage.store.connections.end(connectionId, byOperator);
    const refused = await ask(connectionId);
    expect(refused.status).toBe(409);
    expect(await refused.json()).toMatchObject({ code: 'connection_disconnected' });
  });
});
