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
  expect(await store.replacements.release({ sync, lease, companyId: 'acme' }, { which: 'settled', limit: 10 })).toBe(1);
  expect(await store.assets.get('there')).toMatchObject({ state: 'pending', nextAt: expect.any(Date) });
  expect(await store.assets.get('gone')).toMatchObject({ state: 'gone', nextAt: null });
});
