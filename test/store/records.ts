import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { createLog } from '../../src/floor/log.ts';
import type { ListedAsset, Sync } from '../../src/store/database/schema.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import type { SyncLease } from '../../src/store/syncs/lease.ts';
import { newDatabase } from '../support/database.ts';

export const silent = createLog({ level: 'silent', pretty: false });

/** A store on a new database. */
export async function newStore(): Promise<{ store: Store; url: string; close(): Promise<void> }> {
  const database = await newDatabase();
  const store = await openStore({ url: database.url, log: silent });
  return {
    store,
    url: database.url,
    async close() {
      await store.close();
      await database.drop();
    },
  };
}

/** The same, with a client for statements of the test. */
export async function newStoreAndClient() {
  const opened = await newStore();
  const client = new pg.Client({ connectionString: opened.url });
  await client.connect();
  return {
    ...opened,
    client,
    async close() {
      await client.end();
      await opened.close();
    },
  };
}

/** A user who has consented; without a name a new one. */
export function consented(userId: string = randomUUID(), tokens = 'sealed') {
  return {
    user: { id: userId, name: `Name of ${userId}`, email: `${userId}@example.com` },
    tokens,
    accessExpiresAt: new Date(Date.now() + 3_600_000),
  };
}

/** The lease of the syncs of a connection, for a minute. */
export const leaseTo = (connectionId: string, owner: string): SyncLease => ({ connectionId, owner, leaseMs: 60_000 });

/** An active connection that can read these companies, with a leased sync. */
export async function running(store: Store, ...companyIds: string[]) {
  const { id } = await store.connections.connect(consented());
  await store.connections.setCompanies(
    id,
    companyIds.map((id) => ({ id, name: id })),
    { complete: true },
  );
  const lease = leaseTo(id, randomUUID());
  await store.syncs.request(id, 'incremental');
  const sync = (await store.syncs.takeNext(lease)) as Sync;
  return { connectionId: id, lease, sync };
}

export function listed(id: string, more: Partial<ListedAsset> = {}): ListedAsset {
  return {
    id,
    projectId: null,
    assetType: 'documents',
    name: `name of ${id}`,
    size: 5,
    uploadDate: 1000,
    listed: { id, status: 'ready' },
    ...more,
  };
}
