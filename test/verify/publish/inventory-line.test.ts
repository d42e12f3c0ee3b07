import { afterAll, expect, test } from 'vitest';
import { lineOf } from '../../../src/verify/publish/inventory-line.ts';
import { newStore, running } from '../../store/records.ts';
import { ask } from '../../support/database.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

test('the inventory has no time of removal for an asset that a hold protects', async () => {
  const { connectionId } = await running(store, 'acme');
  await ask(
    opened.url,
    `INSERT INTO assets (id, connection_id, company_id, listed, state, gone_at)
     SELECT id, '${connectionId}', 'acme', '{}', 'gone', '2031-01-01T00:00:00Z' FROM unnest(ARRAY['free', 'held']) AS id`,
  );
  await store.removals.hold({ kind: 'asset', ids: ['held'], reason: 'a lawsuit', by: 'ADMIN_TOKEN' });
  const rows = await store.contents.describedById({ after: '', limit: 10 });
  const options = { versions: [], keepVersions: 0, goneRetention: 86_400_000 };
  const lines = rows.map((row) => lineOf(row, [], options));
  expect(lines.map(({ id, removedAt }) => [id, removedAt])).toEqual([
    ['free', '2031-01-02T00:00:00.000Z'],
    ['held', null],
  ]);
});
