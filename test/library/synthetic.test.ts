import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Catalogue, type Query } from '../../src/library/catalogue.ts';
import { Synthetic } from '../../src/library/content/synthetic.ts';
import { bytesOf } from '../../src/library/index.ts';
import { ASSET_TYPES, type Asset } from '../../src/library/model.ts';
import { type Admin, connect, type DetailedAsset, type Library, startTestLibrary } from '../support/library.ts';

const source = new Synthetic({ count: 2500, seed: 5 });
const { company } = source;
const everything: Query = {
  companyId: company.id,
  limit: 100,
  after: null,
  since: null,
  assetType: null,
  projectId: null,
};

function all(query: Partial<Query> = {}, catalogue = new Catalogue([source])): Asset[] {
  const found: Asset[] = [];
  for (let after: Query['after'] = null; ; after = found.at(-1)!) {
    const { assets, more } = catalogue.page({ ...everything, ...query, after });
    found.push(...assets);
    if (!more) return found;
  }
}

const ids = (assets: Asset[]) => assets.map(({ id }) => id);
const listing = all();

describe('a synthetic library', () => {
  it('every synthetic asset is listed once, newest first, and the same seed gives the same assets', () => {
    expect(new Set(ids(listing)).size).toBe(2500);
    const dates = listing.map(({ uploadDate }) => uploadDate);
    expect(dates).toEqual(dates.toSorted((a, b) => b - a));
    expect(new Set(listing.map(({ assetType }) => assetType))).toEqual(new Set(ASSET_TYPES));
    const again = new Synthetic({ count: 2500, seed: 5 });
    const facts = ({ id, size, filename, uploadDate }: Asset) => ({ id, size, filename, uploadDate });
    expect(all({}, new Catalogue([again])).map(facts)).toEqual(listing.map(facts));
  });

  it('every query of a synthetic library answers like a search through all assets', () => {
    const positions = fc.record({ uploadDate: fc.constantFrom(...listing.map((a) => a.uploadDate)), id: fc.string() });
    fc.assert(
      fc.property(
        fc.option(positions),
        fc.option(fc.constantFrom(...listing.map(({ uploadDate }) => uploadDate))),
        fc.option(fc.constantFrom(...ASSET_TYPES)),
        fc.option(fc.constantFrom('prj_none', ...source.projects(company.id).map(({ id }) => id))),
        fc.integer({ min: 1, max: 100 }),
        (after, since, assetType, projectId, limit) => {
          const wanted = listing.filter(
            (asset) =>
              (!after ||
                asset.uploadDate < after.uploadDate ||
                (asset.uploadDate === after.uploadDate && asset.id < after.id)) &&
              (since === null || asset.uploadDate > since) &&
              (assetType === null || asset.assetType === assetType) &&
              (projectId === null || asset.project?.id === projectId),
          );
          const query = { ...everything, after, since, assetType, projectId, limit };
          const page = new Catalogue([source]).page(query);
          expect(ids(page.assets)).toEqual(ids(wanted.slice(0, limit)));
          expect(page.more).toBe(wanted.length > limit);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('a synthetic asset is found by its id, and unknown ids are not', () => {
    for (const { id } of listing.slice(0, 50)) expect(source.find(id)?.id).toBe(id);
    for (const id of ['ast_5_2500', 'ast_4_1', 'ast_5_01', 'ast_5_1.5', 'ast_5_', '']) {
      expect(source.find(id), id).toBeUndefined();
    }
  });

  it('synthetic sizes stay within the given limits', () => {
    const small = new Synthetic({ count: 500, seed: 1, sizes: [1000, 2000] });
    const sizes = small.list({ ...everything, companyId: small.company.id, limit: 500 }, () => false);
    for (const { size, status } of sizes) expect(status === 'unavailable' || (size >= 1000 && size <= 2000)).toBe(true);
  });

  it('synthetic files are no larger than the given size, and the others stay as they are', () => {
    const limited = new Synthetic({ count: 2500, seed: 5, maxSize: 1_000_000 });
    const sizes = all({}, new Catalogue([limited])).map(({ size }) => size);
    expect(sizes).toEqual(listing.map(({ size }) => Math.min(size, 1_000_000)));
  });

  it('a synthetic library reports its bytes, and an estimate for millions of assets', () => {
    expect(source.bytes).toBe(listing.reduce((sum, { size }) => sum + size, 0));
    const perAsset = new Synthetic({ count: 5_000_000, seed: 5 }).bytes / 5_000_000;
    expect(perAsset / (source.bytes / 2500)).toBeGreaterThan(0.9);
    expect(perAsset / (source.bytes / 2500)).toBeLessThan(1.1);
  });

  it('a synthetic library accepts uploads, changes and deletions', () => {
    const catalogue = new Catalogue([source]);
    const [first, second, third] = listing as [Asset, Asset, Asset];
    catalogue.put({ ...first, name: 'Changed' });
    catalogue.put({ ...second, uploadDate: first.uploadDate + 1 });
    catalogue.put({ ...third, id: 'ast_new', uploadDate: 1 });
    catalogue.remove(third.id);
    expect(ids(all({}, catalogue))).toEqual([second.id, first.id, ...ids(listing.slice(3)), 'ast_new']);
    expect(catalogue.find(first.id)?.name).toBe('Changed');
    expect(catalogue.find(third.id)).toBeUndefined();
  });
});

describe('a synthetic library over HTTP', () => {
  let library: Library;
  let admin: Admin;
  beforeAll(async () => {
    ({ library, admin } = await startTestLibrary({ content: { synthetic: 100_000_000, seed: 9 } }));
  });
  afterAll(() => library.close());

  it('the last of a hundred million assets has its bytes, rendition, thumbnail and transcript', async () => {
    const headers = { authorization: `Bearer ${(await connect(library)).access_token}` };
    const path = `${library.apiUrl}/api/v1/assets`;
    const get = (id: string) => fetch(`${path}/ast_9_${id}`, { headers });
    let number = 99_999_998;
    let asset: DetailedAsset;
    do asset = ((await (await get(String(--number))).json()) as { asset: DetailedAsset }).asset;
    while (asset.assetType !== 'videos' || number % 50 === 49);

    const referer = library.appUrl;
    const end = await fetch(asset.download.url, { headers: { referer, range: `bytes=${asset.size - 1000}-` } });
    const bytes = bytesOf(`9 ${number}`, asset.size - 1000, asset.size);
    expect(Buffer.from(await end.arrayBuffer()).equals(bytes)).toBe(true);
    expect((await fetch(asset.download.mp4Url!, { method: 'HEAD', headers: { referer } })).status).toBe(200);
    expect((await fetch(asset.thumbnailUrl!, { headers: { referer } })).status).toBe(200);
    const transcript = await fetch(`${path}/${asset.id}/transcript`, { headers });
    expect(await transcript.text()).toMatch(/^WEBVTT\n/);
    expect((await admin.companies()).map(({ id }) => id)).toEqual(['cmp_synthetic_9']);
  });
});
