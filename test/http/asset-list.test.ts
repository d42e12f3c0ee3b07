import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newStage, type Stage } from '../support/stage.ts';
import { asking, problem } from './asking.ts';

let stage: Stage;
let companyId: string;
let ids: string[];
beforeAll(async () => {
  stage = await newStage();
  const company = await stage.company();
  companyId = company.companyId;
  ids = (await stage.upload(companyId, 25)).sort();
  await stage.run(company.connectionId);
});
afterAll(async () => {
  await stage?.close();
});

const ask = asking(() => stage);

describe('the list of assets', () => {
  test('assets are listed in pages without gaps or repeats', async () => {
    const found: string[] = [];
    let path = `/api/assets?companyId=${companyId}&limit=10`;
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { status, body } = await ask('GET', cursor ? `${path}&cursor=${cursor}` : path);
      expect(status).toBe(200);
      expect(body.assets.length).toBeLessThanOrEqual(10);
      found.push(...body.assets.map((asset: { id: string }) => asset.id));
      cursor = body.nextCursor;
    }
    expect(found).toEqual(ids);
    path = `/api/assets?companyId=${companyId}&limit=25`;
    expect((await ask('GET', path)).body).toMatchObject({ nextCursor: null });
  });

  test.each([
    ['state=pending&type=documents', 25],
    ['state=failed', 0],
    ['type=videos', 0],
    ['q=file%201', 11],
    ['q=%25', 0],
    ['companyId=nobody', 0],
    ['projectId=nothing', 0],
    ['limit=250', 25],
    ['sort=-name', 25],
    ['tag=nothing', 0],
    ['tag=a&tag=b', 0],
    ['minSize=0&maxSize=1000000000', 25],
    ['minSize=1000000000', 0],
    ['mimeType=application/*', 25],
    ['mimeType=application/pdf', 0],
    ['uploadedFrom=1990-01-01', 25],
    ['uploadedBefore=1990-01-01T00:00:00%2B02:00', 0],
  ])('assets are searched by %s', async (query, count) => {
    expect((await ask('GET', `/api/assets?${query}`)).body.assets).toHaveLength(count);
  });

  test.each([
    ['limit=0', 'limit'],
    ['limit=251', 'limit'],
    ['limit=many', 'limit: expected a whole number from 1 to 250'],
    ['skipped=maybe', 'skipped: expected true or false'],
    ['limit=1.5', 'limit'],
    ['state=lost', 'state'],
    ['state=failed&state=gone', 'state'],
    ['q=', 'q'],
    ['q=%00', 'q'],
    ['companyId=a%00b', 'companyId'],
    ['sort=age', 'sort'],
    ['minSize=-1', 'minSize: expected a number of bytes'],
    ['maxSize=big', 'maxSize: expected a number of bytes'],
    ['uploadedFrom=yesterday', 'uploadedFrom: expected a date'],
    ['uploadedBefore=2026-02-31', 'uploadedBefore: expected a date'],
    ['tag=', 'tag'],
  ])('a search of assets by %s is refused with the name of the field', async (query, field) => {
    expect(await ask('GET', `/api/assets?${query}`)).toMatchObject(
      problem(400, 'invalid_request', expect.stringContaining(field)),
    );
  });

  test('assets are sorted, page by page, and a cursor fits only the order that it was made for', async () => {
    const names: string[] = [];
    let cursor: string | null = null;
    do {
      const { body } = await ask('GET', `/api/assets?sort=-name&limit=10${cursor ? `&cursor=${cursor}` : ''}`);
      names.push(...body.assets.map(({ name }: { name: string }) => name));
      cursor = body.nextCursor;
      if (cursor) {
        const other = await ask('GET', `/api/assets?sort=size&cursor=${cursor}`);
        expect(other).toMatchObject(problem(400, 'invalid_cursor', expect.stringContaining('sorted by -name')));
      }
    } while (cursor);
    expect(names).toHaveLength(25);
    expect(names).toEqual(names.toSorted().reverse());
  });

  test('a cursor may have an id of the maximum length, twice', async () => {
    const id = 'x'.repeat(1000);
    const cursor = Buffer.from(JSON.stringify(['id', id, id])).toString('base64url');
    expect(await ask('GET', `/api/assets?cursor=${cursor}`)).toMatchObject({ status: 200 });
  });

  test('the matching assets are counted by facet', async () => {
    const { status, body } = await ask('GET', `/api/asset-facets?companyId=${companyId}&q=file%201`);
    expect(status).toBe(200);
    expect(body).toMatchObject({ matching: 11, isComplete: true });
    expect(body.facets.type).toEqual([{ value: 'documents', name: null, count: 11 }]);
    expect(body.facets.companyId).toEqual([{ value: companyId, name: expect.any(String), count: 11 }]);
    const none = await ask('GET', '/api/asset-facets?connectionId=unknown');
    expect(none).toMatchObject(problem(404, 'connection_not_found', expect.any(String)));
  });

  test.each(['%00', 'AA', 'not a cursor!', '%F0%9F'])('an invalid cursor (%s) is refused', async (cursor) => {
    const answer = await ask('GET', `/api/assets?cursor=${cursor}`);
    expect(answer.status).toBe(400);
    expect(answer.body.code).toMatch(/^invalid_(cursor|request)$/);
  });
});
