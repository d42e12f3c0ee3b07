import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type AssetFilter, type Order, sortKeys } from '../../../src/store/assets/search.ts';
import { newStoreAndClient } from '../records.ts';

const opened = await newStoreAndClient();
const { store, client } = opened;
afterAll(() => opened.close());

interface Row {
  id: string;
  name: string | null;
  project: string | null;
  type: string | null;
  size: number | null;
  date: number | null;
  mime: string | null;
  tags: string[];
  state: string;
  company: string;
}
/** Some conditions match more than 2000 of them, others fewer. */
const rows = Array.from(
  { length: 240 },
  (_, i): Row => ({
    id: `a-${String((i * 7919) % 2600).padStart(4, '0')}`,
    name: i % 11 === 0 ? null : `${['Beach', 'beach', 'Ärger', 'zoo'][i % 4]} ${i % 30}.jpg`,
    project: i % 5 === 0 ? null : `p${i % 3}`,
    type: ['videos', 'photography', null][i % 3]!,
    size: i % 13 === 0 ? null : (i % 17) * 1000,
    date: i % 19 === 0 ? null : 1_700_000_000_000 + (i % 23) * 86_400_000,
    mime: [null, 'image/png', 'image/jpeg', 'video/mp4'][i % 4]!,
    tags: ['red', 'green', 'blue'].filter((_tag, bit) => i & (1 << bit)),
    state: ['mirrored', 'failed'][i % 7 === 0 ? 1 : 0]!,
    company: `k${i % 2}`,
  }),
);

beforeAll(async () => {
  await client.query(`
    INSERT INTO connections (id, user_id, user_name, user_email, status) VALUES ('c0', 'u0', 'Ann', 'e', 'active');
    INSERT INTO companies VALUES ('k0', 'Acme'), ('k1', 'Other')`);
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, state, name, project_id, asset_type, size, upload_date, mirrored_at, listed)
     SELECT id, 'c0', company, state, name, project, type, size, date, CASE state WHEN 'mirrored' THEN now() END,
       jsonb_build_object('mimeType', mime, 'tags', tags, 'projectName', 'Project ' || project)
     FROM jsonb_to_recordset($1) AS r (id text, name text, project text, type text, size bigint, date bigint, mime text,
       tags jsonb, state text, company text)`,
    [JSON.stringify(rows)],
  );
});

/** The same by reading all rows. */
const matches = (row: Row, filter: AssetFilter) =>
  (filter.companyId === undefined || row.company === filter.companyId) &&
  (filter.projectId === undefined || row.project === filter.projectId) &&
  (filter.state === undefined || row.state === filter.state) &&
  (filter.type === undefined || row.type === filter.type) &&
  (filter.tag ?? []).every((tag) => row.tags.includes(tag)) &&
  (filter.mimeType === undefined ||
    (filter.mimeType.endsWith('*')
      ? (row.mime ?? '').startsWith(filter.mimeType.slice(0, -1))
      : row.mime === filter.mimeType)) &&
  (filter.uploadedFrom === undefined || (row.date !== null && row.date >= filter.uploadedFrom)) &&
  (filter.uploadedBefore === undefined || (row.date !== null && row.date < filter.uploadedBefore)) &&
  (filter.minSize === undefined || (row.size !== null && row.size >= filter.minSize)) &&
  (filter.maxSize === undefined || (row.size !== null && row.size <= filter.maxSize)) &&
  (filter.q === undefined || row.id === filter.q || (row.name ?? '').toLowerCase().includes(filter.q.toLowerCase()));

const day = (n: number) => 1_700_000_000_000 + n * 86_400_000;
const filters: AssetFilter[] = [
  {},
  { minSize: 0 },
  { minSize: 0, state: 'mirrored' },
  { tag: ['red'] },
  { tag: ['red', 'blue'] },
  { tag: ['none'] },
  { mimeType: 'image/*' },
  { mimeType: 'image/png', projectId: 'p1' },
  { mimeType: 'image/%' },
  { uploadedFrom: day(5), uploadedBefore: day(9) },
  { minSize: 3000, maxSize: 9000, type: 'videos' },
  { state: 'failed', tag: ['green'], companyId: 'k1' },
  { q: 'BEACH', mimeType: 'image/*' },
  { q: 'a-0017' },
  { q: 'beach 1', tag: ['red'], state: 'mirrored' },
];
const orders: Order[] = sortKeys.flatMap((by) => [
  { by, descending: false },
  { by, descending: true },
]);

describe('a search', () => {
  test.each(filters)('a search finds what matches %j, once, page by page, in any order', async (filter) => {
    const expected = rows.filter((row) => matches(row, filter)).map(({ id }) => id);
    for (const order of orders) {
      const found: { id: string; key: string | number }[] = [];
      for (let after: [string | number, string] | undefined; ; ) {
        const page = await store.assets.search({ ...filter, order, after, limit: 370 });
        found.push(...page.map(({ id, sortKey }) => ({ id, key: sortKey })));
        const last = page.at(-1);
        if (page.length < 370 || !last) break;
        after = [last.sortKey, last.id];
      }
      expect(found.map(({ id }) => id).sort()).toEqual([...expected].sort());
      const sorted = found.toSorted((a, b) => compare(a.key, b.key) || compare(a.id, b.id));
      expect(found).toEqual(order.descending ? sorted.reverse() : sorted);
    }
  });

  test('a search sorts by what the order names', async () => {
    const first = async (by: Order['by'], descending: boolean) =>
      (await store.assets.search({ order: { by, descending }, limit: 1 }))[0]!;
    expect((await first('size', true)).size).toBe(16_000);
    expect((await first('uploadDate', true)).uploadDate).toBe(day(22));
    expect((await first('name', false)).name).toBeNull();
    expect((await first('id', false)).id).toBe('a-0000');
  });
});

const compare = (a: string | number, b: string | number) =>
  typeof a === 'string' ? Buffer.compare(Buffer.from(a), Buffer.from(String(b))) : a - Number(b);

describe('facets', () => {
  test.each(filters)('facets count what matches %j', async (filter) => {
    const expected = rows.filter((row) => matches(row, filter));
    const { matching, counts } = await store.assets.facets({ ...filter, most: 5000 });
    expect(matching).toBe(expected.length);
    const count = (values: (string | null)[]) => {
      const byValue = new Map<string, number>();
      for (const value of values) if (value !== null) byValue.set(value, (byValue.get(value) ?? 0) + 1);
      return Object.fromEntries(byValue);
    };
    const of = (facet: string) =>
      Object.fromEntries(counts.filter((one) => one.facet === facet).map(({ value, count }) => [value, count]));
    expect(of('state')).toEqual(count(expected.map(({ state }) => state)));
    expect(of('type')).toEqual(count(expected.map(({ type }) => type)));
    expect(of('mimeType')).toEqual(count(expected.map(({ mime }) => mime)));
    expect(of('projectId')).toEqual(count(expected.map(({ project }) => project)));
    expect(of('companyId')).toEqual(count(expected.map(({ company }) => company)));
    expect(of('tag')).toEqual(count(expected.flatMap(({ tags }) => tags)));
  });

  test('facets have names for people, and stop counting at a maximum', async () => {
    const { matching, counts } = await store.assets.facets({ most: 50 });
    expect(matching).toBe(50);
    expect(counts.find(({ facet }) => facet === 'companyId')!.name).toMatch(/^(Acme|Other)$/);
    expect(counts.find(({ facet }) => facet === 'connectionId')).toMatchObject({ value: 'c0', name: 'Ann', count: 50 });
    expect(counts.find(({ facet, value }) => facet === 'projectId' && value === 'p1')).toMatchObject({
      name: 'Project p1',
    });
  });
});

test('a changed listing changes what is found, and values that no index could hold do no harm', async () => {
  const long = 'x'.repeat(5000);
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, state, name, listed)
     VALUES ('changed', 'c0', 'k0', 'failed', $1, jsonb_build_object('tags', jsonb_build_array($1::text), 'mimeType', $1::text))`,
    [Array.from({ length: 5000 }, (_, i) => String.fromCodePoint(0x4e00 + ((i * 7919) % 20_000))).join('')],
  );
  await client.query(
    `UPDATE assets SET listed = '{"tags": ["new", 7, null], "mimeType": "audio/mpeg"}' WHERE id = 'changed'`,
  );
  const ids = async (filter: AssetFilter) => (await store.assets.search({ ...filter, limit: 5 })).map(({ id }) => id);
  expect(await ids({ tag: ['new', '7'] })).toEqual(['changed']);
  expect(await ids({ mimeType: 'audio/*' })).toEqual(['changed']);
  await client.query(`UPDATE assets SET listed = '{"tags": "new", "mimeType": 5}' WHERE id = 'changed'`);
  expect(await ids({ tag: ['new'] })).toEqual([]);
  await client.query(
    `UPDATE assets SET size = 5, listed = jsonb_build_object('tags', jsonb_build_array($1::text)) WHERE id = 'changed'`,
    [long],
  );
  expect(await ids({ tag: [long] })).toEqual(['changed']);
  await client.query(`DELETE FROM assets WHERE id = 'changed'`);
});

test('an asset with the longest id and name is found and sorted', async () => {
  // Random characters of four bytes: an index cannot compress them.
  const characters = (count: number) =>
    Array.from({ length: count }, () => String.fromCodePoint(0x20000 + Math.floor(Math.random() * 40_000))).join('');
  const [id, name] = [characters(250), characters(400)];
  await client.query(
    `INSERT INTO assets (id, connection_id, company_id, state, name, listed) VALUES ($1, 'c0', 'k0', 'failed', $2, '{}')`,
    [id, name],
  );
  const q = [...name].slice(200, 300).join('');
  const found = await store.assets.search({ q, limit: 5, order: { by: 'name', descending: true } });
  expect(found.map((asset) => asset.id)).toEqual([id]);
  await client.query('DELETE FROM assets WHERE id = $1', [id]);
});
