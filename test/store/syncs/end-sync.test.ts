import { randomUUID } from 'node:crypto';
import { afterAll, expect, test } from 'vitest';
import type { SyncScope } from '../../../src/store/database/schema.ts';
import type { Store } from '../../../src/store/store.ts';
import { ask } from '../../support/database.ts';
import { byOperator, why } from '../../support/reasons.ts';
import { consented, leaseTo, newStore } from '../records.ts';

const opened = await newStore();
const store: Store = opened.store;
afterAll(() => opened.close());

async function sync(connectionId: string, status: 'done' | 'failed', scope: SyncScope = {}): Promise<void> {
  const lease = leaseTo(connectionId, randomUUID());
  await store.syncs.request(connectionId, 'incremental', scope);
  const taken = await store.syncs.takeNext(lease);
  if (taken === undefined || taken === 'busy') throw new Error('no sync was taken');
  await store.syncs.endSync(taken, lease, { status, error: status === 'failed' ? why : null });
  await store.syncs.release(lease);
}

const failures = async (connectionId: string) =>
  (await ask(opened.url, `SELECT FROM events WHERE kind = 'sync.failed' AND connection_id = '${connectionId}'`)).length;

test('of several failures in a row only the first makes an event, also if single assets were synced in between', async () => {
  const { id } = await store.connections.connect(consented());
  await sync(id, 'failed');
  await sync(id, 'done', { assetIds: ['a'] });
  await sync(id, 'failed');
  expect(await failures(id)).toBe(1);
  await sync(id, 'done');
  await sync(id, 'failed', { assetIds: ['unknown'] });
  await sync(id, 'failed');
  expect(await failures(id)).toBe(3);
});

test('the first failure after a reconnect makes an event, although the disconnect has failed a sync', async () => {
  const userId = randomUUID();
  const { id } = await store.connections.connect(consented(userId));
  await store.syncs.request(id, 'incremental');
  await store.connections.end(id, byOperator);
  await store.connections.connect(consented(userId));
  await sync(id, 'failed');
  expect(await failures(id)).toBe(1);
});

test('a sync of single assets does not count as the last sync of a connection', async () => {
  const { id } = await store.connections.connect(consented());
  await sync(id, 'done', { assetIds: ['a'] });
  expect(await store.connections.get(id)).toMatchObject({ lastSyncAt: null });
  await sync(id, 'done');
  expect(await store.connections.get(id)).toMatchObject({ lastSyncAt: expect.any(Date) });
});
