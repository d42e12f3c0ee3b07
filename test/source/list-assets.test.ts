import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Rejected } from '../../src/floor/errors.ts';
import { answer } from './bare.ts';
import { newClientGround, signal } from './client-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newClientGround();
const { admin, bare, token, client, odd, newCompany } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('a listing', () => {
  async function listAll(companyId: string, since?: number): Promise<string[]> {
    const ids: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await client().listAssets({ token, signal, companyId, cursor, since });
      expect(page.assets.length).toBeLessThanOrEqual(100);
      ids.push(...page.assets.map((asset) => asset.id));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return ids;
  }

  it('a listing comes in pages of a hundred assets, newest first, to its end', { tags: 'slow' }, async () => {
    const { id, ids } = await newCompany(230);
    await admin.clearRequests();
    expect(await listAll(id)).toEqual(ids);
    expect(await admin.requests({ endpoint: 'assets' })).toHaveLength(3);
  });

  it('a listing ends if nextCursor is null, absent or empty', async () => {
    const { id, ids } = await newCompany(3);
    for (const nextCursor of ['null', 'absent', 'empty'] as const) {
      await admin.setFaults({ endpoint: 'assets', nextCursor });
      const page = await client().listAssets({ token, signal, companyId: id });
      expect(page.nextCursor).toBeUndefined();
      expect(page.assets.map((asset) => asset.id)).toEqual(ids);
    }
  });

  it('a listing since a time has only assets that were uploaded later', async () => {
    const { id, ids } = await newCompany(5);
    expect(await listAll(id, 1_700_000_000_000 - 3)).toEqual(ids.slice(0, 3));
    expect(await listAll(id, 0)).toEqual(ids);
  });

  it('a listing can be limited to one type or one project, but not to both', async () => {
    const { id, ids } = await newCompany(2);
    const project = await admin.addProject({ companyId: id, name: 'Spring' });
    await admin.changeAsset(ids[0]!, { assetType: 'brand assets' });
    await admin.changeAsset(ids[1]!, { projectId: project.id });
    const list = async (filter: object) =>
      (await client().listAssets({ token, signal, companyId: id, ...filter })).assets.map((asset) => asset.id);
    expect(await list({ assetType: 'brand assets' })).toEqual([ids[0]]);
    expect(await list({ projectId: project.id })).toEqual([ids[1]]);
    expect(await list({ assetType: 'brand assets', projectId: project.id })).toEqual([ids[0]]);
  });

  it('a listing has the time of the library', async () => {
    const { id } = await newCompany();
    const before = Date.now();
    const { date } = await client().listAssets({ token, signal, companyId: id });
    expect(date).toBeGreaterThan(before - 5000);
    expect(date).toBeLessThanOrEqual(Date.now());
    bare.answer(answer(200, { assets: [] }, { date: 'Wed, 21 Oct 2015 07:28:00 GMT' }));
    expect((await odd().listAssets({ token, signal, companyId: 'c' })).date).toBe(Date.UTC(2015, 9, 21, 7, 28));
  });

  it('a listing has its valid assets, and names what is wrong with the others', async () => {
    const { id, ids } = await newCompany(3);
    await admin.changeAsset(ids[1]!, { override: { size: 'five' } });
    const page = await client().listAssets({ token, signal, companyId: id });
    expect(page.assets.map((asset) => asset.id)).toEqual([ids[0], ids[2]]);
    expect(page.broken).toMatchObject([
      { problem: expect.stringMatching(/^size: /), item: { id: ids[1], size: 'five' } },
    ]);
  });

  it('a listing keeps assets without a readable id apart from the others', async () => {
    bare.answer(answer(200, { assets: [{ id: 5 }, null, 'text', { name: 'x' }, { id: 'a' }] }));
    const page = await odd().listAssets({ token, signal, companyId: 'c' });
    expect(page.assets).toEqual([{ id: 'a' }]);
    expect(page.broken.map(({ item }) => item)).toEqual([{ id: 5 }, null, 'text', { name: 'x' }]);
    expect(page.broken.map(({ problem }) => problem.split(':')[0])).toEqual(['id', 'answer', 'answer', 'id']);
  });

  it('a listing keeps unknown fields', async () => {
    const { id, ids } = await newCompany(1);
    await admin.changeAsset(ids[0]!, { override: { status: 'frozen', assetType: 'holograms', mood: { of: 'x' } } });
    const page = await client().listAssets({ token, signal, companyId: id });
    expect(page.assets).toMatchObject([{ status: 'frozen', assetType: 'holograms', mood: { of: 'x' } }]);
  });

  it('a listing that breaks the schema is rejected with the name of the field', async () => {
    for (const [body, field] of [
      [{}, 'assets'],
      [{ assets: [], nextCursor: 7 }, 'nextCursor'],
      [[], 'answer'],
    ] as const) {
      bare.answer(answer(200, body));
      const error = await failureOf(odd().listAssets({ token, signal, companyId: 'c' }));
      expect(error).toBeInstanceOf(Rejected);
      expect(error.message).toContain(
        `list the assets of company c: the library's answer breaks the API schema: ${field}:`,
      );
    }
  });

  it('a listing of a company whose id must be escaped has the assets of this company', async () => {
    bare.answer(answer(200, { assets: [] }));
    await odd().listAssets({ token, signal, companyId: 'a/b?c#d e', cursor: 'x&limit=1' });
    expect(bare.requests[0]!.path).toBe('/api/v1/companies/a%2Fb%3Fc%23d%20e/assets?limit=100&cursor=x%26limit%3D1');
  });
});
