import { afterAll, expect, test } from 'vitest';
import { hashOf } from '../../../src/store/removals/tombstones.ts';
import { ask } from '../../support/database.ts';
import { newStore } from '../records.ts';

const opened = await newStore();
const { store } = opened;
afterAll(() => opened.close());

test('a verification saves nothing about an asset that was erased meanwhile', async () => {
  await ask(opened.url, `INSERT INTO verifications (id, options, status, owner) VALUES ('one', '{}', 'running', 'me')`);
  const tombstone = { erasedAt: new Date(), erasedBy: 'ADMIN_TOKEN', reason: 'requested by the owner' };
  await store.removals.restoreTombstones([{ hash: hashOf('erased'), ...tombstone }]);
  const reason = { code: 'missing_object', kind: 'media' } as const;
  const line = { mark: '-', kind: 'media', remedy: 'fetch', reason, difference: true } as const;
  const lines = ['kept', 'erased', 'kept too'].map((assetId) => ({ ...line, assetId, key: `acme/${assetId}` }));
  const counts = { lines: 3, same: 0, missing: 3, foreign: 0, different: 0, errors: 0 };
  const found = { lines, counts: counts as never, position: { key: 'acme/kept too' } };
  expect(await store.verifications.save('one', 'me', found)).toBe(true);
  const saved = await store.verifications.lines('one', { after: -1, limit: 10 });
  expect(saved.map(({ assetId }) => assetId)).toEqual(['kept', 'kept too']);
  expect(saved[0]).toEqual({ ...lines[0], number: 1 });
  expect(await store.verifications.save('one', 'another', found)).toBe(false);
});
