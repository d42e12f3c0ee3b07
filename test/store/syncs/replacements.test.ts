import { afterAll, expect, test } from 'vitest';
import { ask } from '../../support/database.ts';
import { listed, newStore, running } from '../records.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

test('an asset that is gone, as while it is erased, is not due again when replacements are released', async () => {
  const { sync, lease } = await running(store, 'acme');
  const decide = () => ({ state: 'pending' as const, reason: null, reset: true, due: true });
  await store.syncs.recordPage({
    ...{ sync, lease, companyId: 'acme', decide, position: {} },
    assets: ['there', 'gone'].map((id) => listed(id)),
  });
  await ask(
    opened.url,
    `UPDATE assets SET state = CASE id WHEN 'gone' THEN 'gone' ELSE 'mirrored' END, next_at = NULL`,
  );
  await ask(opened.url, `INSERT INTO replacements (asset_id, company_id) SELECT id, company_id FROM assets`);
  const company = { sync, lease, companyId: 'acme' };
  const { until } = await store.replacements.count(company);
  expect(await store.replacements.release(company, { which: 'settled', until, limit: 10 })).toBe(1);
  expect(await store.assets.get('there')).toMatchObject({ state: 'pending', nextAt: expect.any(Date) });
  expect(await store.assets.get('gone')).toMatchObject({ state: 'gone', nextAt: null });
});

test('replacements that are set aside after the count are not released', async () => {
  const { sync, lease } = await running(store, 'other');
  const decide = () => ({ state: 'mirrored' as const, reason: null, reset: true, due: false });
  const company = { sync, lease, companyId: 'other' };
  const assets = ['counted', 'late'].map((id) => listed(id));
  await store.syncs.recordPage({ ...company, decide, position: {}, assets });
  const setAside = (id: string) =>
    ask(
      opened.url,
      `INSERT INTO replacements (asset_id, company_id) SELECT id, company_id FROM assets WHERE id = '${id}'`,
    );
  await setAside('counted');
  const { until, sample } = await store.replacements.count(company);
  expect(sample).toEqual(['counted']);
  await setAside('late');
  expect(await store.replacements.release(company, { which: 'settled', until, limit: 10 })).toBe(1);
  expect(await store.assets.get('counted')).toMatchObject({ state: 'pending' });
  expect(await store.assets.get('late')).toMatchObject({ state: 'mirrored' });
  expect(await store.replacements.since('late')).toEqual(expect.any(Date));
});
