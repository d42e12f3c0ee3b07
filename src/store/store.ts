import { sql } from 'kysely';
import type { Log } from '../log.ts';
import { assetRecords } from './assets/assets.ts';
import { countRecords } from './assets/counts.ts';
import { filterRecords } from './assets/filters.ts';
import { historyRecords } from './assets/history.ts';
import { restoreRecords } from './assets/restore.ts';
import { throughputRecords } from './assets/throughput.ts';
import { forecastRecords } from './assets/upcoming.ts';
import { uploadRecords } from './assets/uploads.ts';
import { connectionRecords } from './connections/connections.ts';
import { consentRecords } from './connections/consents.ts';
import { correctFuture, type Horizon } from './database/correct-future.ts';
import { listen, type Notice, openDatabase } from './database/database.ts';
import { prune } from './database/prune.ts';
import type { Database } from './database/schema.ts';
import { eventRecords } from './events/events.ts';
import { webhookRecords } from './events/webhooks.ts';
import { chores } from './settings/chores.ts';
import { bucketRecord } from './settings/mirror-id.ts';
import { sessions } from './settings/sessions.ts';
import { settings } from './settings/settings.ts';
import { missingRecords } from './syncs/missing.ts';
import { syncRecords } from './syncs/syncs.ts';
import { contentsRecords } from './verifications/contents.ts';
import { inventoryRecords } from './verifications/inventories.ts';
import { verificationRecords } from './verifications/verifications.ts';

/** The records: the only module that contains SQL. */
export type Store = Awaited<ReturnType<typeof openStore>>;

/** Opens the database, brings its schema up to date, and listens for what other processes tell. */
export async function openStore(options: { url: string; log: Log }) {
  const db = await openDatabase(options);
  const events = eventRecords(db);
  await events.settle();
  const listeners = new Set<(notice: Notice) => void>();
  const followers = new Set<() => void>();
  const listener = listen({
    ...options,
    onNotice: (notice) => {
      for (const heard of listeners) heard(notice);
    },
    onEvents: () => {
      for (const heard of followers) heard();
    },
  });
  return {
    ...readable(db),
    missing: missingRecords(db),
    /** Forgets what is older than people look back. Undefined: another process is at it. */
    prune: () => prune(db),
    /** Corrects times that lie further ahead than anything is planned. Returns how many rows, by table. */
    correctFuture: (horizon: Horizon) => correctFuture(db, horizon),
    bucket: bucketRecord(db),
    history: historyRecords(db),
    consents: consentRecords(db),
    contents: contentsRecords(db),
    inventories: inventoryRecords(db),
    restore: restoreRecords(db),
    uploads: uploadRecords(db),
    chores: chores(db),
    settings: settings(db),
    filters: filterRecords(db),
    sessions: sessions(db),
    events,
    throughput: throughputRecords(db),
    forecast: forecastRecords(db),
    webhooks: webhookRecords(db),

    /** Reads that belong together: each sees the records as they are at one and the same moment. */
    async snapshot<T>(read: (at: ReturnType<typeof readable>) => Promise<T>): Promise<T> {
      const transaction = db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only');
      return transaction.execute((tx) => read(readable(tx)));
    },

    /** Calls `heard` when a connection or a setting has changed, in whichever process. Returns how to stop that. */
    onNotice(heard: (notice: Notice) => void): () => void {
      listeners.add(heard);
      return () => listeners.delete(heard);
    },

    /** Calls `heard` when there are new events, of whichever process. Returns how to stop that. */
    onEvents(heard: () => void): () => void {
      followers.add(heard);
      return () => followers.delete(heard);
    },

    /** The time by the database's clock, in epoch milliseconds. */
    async now(): Promise<number> {
      const { rows } = await sql<{ at: Date }>`SELECT now() AS at`.execute(db);
      return rows[0]!.at.getTime();
    },

    /** Whether the database answers. @throws what is wrong with it */
    async check(): Promise<void> {
      await db.selectNoFrom((e) => e.lit(1).as('one')).execute();
    },

    async close(): Promise<void> {
      await listener.close();
      await db.destroy();
    },
  };
}

const readable = (db: Database) => ({
  connections: connectionRecords(db),
  assets: assetRecords(db),
  counts: countRecords(db),
  syncs: syncRecords(db),
  verifications: verificationRecords(db),
});
