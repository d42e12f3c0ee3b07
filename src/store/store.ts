import { sql } from 'kysely';
import type { Log } from '../floor/log.ts';
import * as uploads from './assets/abandoned-uploads.ts';
import * as assets from './assets/assets.ts';
import { batchedLeases } from './assets/batched-leases.ts';
import { dispatch, overdue } from './assets/due.ts';
import { facets } from './assets/facets.ts';
import * as finish from './assets/finish.ts';
import { ofAsset } from './assets/history.ts';
import * as rebuild from './assets/rebuild.ts';
import * as retention from './assets/retention.ts';
import { search } from './assets/search.ts';
import * as filters from './assets/skip-by-filter.ts';
import { renew } from './assets/take-lease.ts';
import * as transfers from './assets/transfers.ts';
import { dueWithin } from './assets/upcoming.ts';
import * as versions from './assets/versions.ts';
import { between, currentCursor, page, renew as renewFeed } from './changes/changes.ts';
import * as changeFiles from './changes/files.ts';
import { adopt } from './companies/adopt-assets.ts';
import { countHeld, endHeldChanges } from './companies/held-changes.ts';
import { setCompanies } from './companies/set-companies.ts';
import * as connectionFilters from './connections/changed-filters.ts';
import * as connections from './connections/connections.ts';
import * as consents from './connections/consents.ts';
import { countTroubled, freshness, lags, late } from './connections/late-syncs.ts';
import { changeSettings } from './connections/settings.ts';
import * as status from './connections/status.ts';
import { tagged, tagsOf, withTags } from './connections/tags.ts';
import * as tokens from './connections/tokens.ts';
import * as counts from './counts/counts.ts';
import * as throughput from './counts/throughput.ts';
import { bind } from './database/bind.ts';
import { correctFuture } from './database/correct-future.ts';
import { listen, type Notice, openDatabase } from './database/database.ts';
import type { Database } from './database/schema.ts';
import * as drills from './drills/drills.ts';
import * as losses from './drills/losses.ts';
import { openScratch } from './drills/scratch.ts';
import { addEvent } from './events/add-event.ts';
import { log as deliveryLog, redeliver } from './events/delivery-log.ts';
import * as endpoints from './events/endpoints.ts';
import * as events from './events/events.ts';
import { moveCopiedToStart } from './events/events.ts';
import * as webhooks from './events/webhooks.ts';
import * as apiTokens from './operators/api-tokens.ts';
import * as audit from './operators/audit.ts';
import * as sessions from './operators/sessions.ts';
import { prune } from './prune.ts';
import * as dueRemovals from './removals/due-removals.ts';
import * as erasures from './removals/erasures.ts';
import { heldTooLate, hold, holds, isProtected, release } from './removals/holds.ts';
import * as removing from './removals/remove.ts';
import { beginErasing, erasedAmong, restoreTombstones, tombstone, tombstones } from './removals/tombstones.ts';
import * as checksumSupport from './settings/checksum-support.ts';
import * as chores from './settings/chores.ts';
import * as bucket from './settings/mirror-id.ts';
import * as settings from './settings/settings.ts';
import { endSync } from './syncs/end-sync.ts';
import { extendLease } from './syncs/lease.ts';
import * as missing from './syncs/missing.ts';
import { recordPage } from './syncs/record-page.ts';
import * as replacements from './syncs/replacements.ts';
import { requestDue, schedules } from './syncs/schedule.ts';
import * as syncs from './syncs/syncs.ts';
import * as syncLeases from './syncs/take-lease.ts';
import * as waits from './syncs/waits.ts';
import { hits } from './transcripts/transcript-hits.ts';
import * as transcripts from './transcripts/transcripts.ts';
import * as assurance from './verifications/assurance.ts';
import * as contents from './verifications/contents.ts';
import * as findings from './verifications/findings.ts';
import * as inventories from './verifications/inventories.ts';
import * as lines from './verifications/lines.ts';
import * as manifests from './verifications/manifests.ts';
import * as repairs from './verifications/repairs.ts';
import * as scrub from './verifications/scrub.ts';
import * as verifications from './verifications/verifications.ts';

/** The database, by aggregate. */
export type Store = Awaited<ReturnType<typeof openStore>>;

/** Opens the database, brings its schema up to date, and listens for notices of other processes. */
export async function openStore(options: { url: string; log: Log }) {
  const db = await openDatabase(options);
  await moveCopiedToStart(db);
  const noticeListeners = new Set<(notice: Notice) => void>();
  const eventListeners = new Set<() => void>();
  const subscription = listen({
    ...options,
    onNotice: (notice) => {
      for (const listener of noticeListeners) listener(notice);
    },
    onEvents: () => {
      for (const listener of eventListeners) listener();
    },
  });
  return {
    ...readable(db),
    ...bind(db, { prune, correctFuture, check, now }),
    missing: bind(db, missing),
    replacements: bind(db, replacements),
    bucket: bind(db, bucket),
    checksumSupport: bind(db, checksumSupport),
    history: bind(db, { ofAsset }),
    consents: bind(db, consents),
    contents: bind(db, { ...contents, ...repairs }),
    changes: bind(db, { page, between, currentCursor, renew: renewFeed, ...changeFiles }),
    inventories: bind(db, inventories),
    manifests: bind(db, manifests),
    assurance: bind(db, { ...assurance, ...findings }),
    drills: bind(db, { ...drills, ...losses }),
    removals: bind(db, removals),
    rebuild: bind(db, rebuild),
    retention: bind(db, retention),
    uploads: bind(db, uploads),
    chores: bind(db, chores),
    settings: bind(db, settings),
    filters: bind(db, { ...filters, ...connectionFilters }),
    sessions: bind(db, sessions),
    apiTokens: bind(db, apiTokens),
    audit: bind(db, audit),
    events: bind(db, { ...events, add: addEvent }),
    throughput: bind(db, throughput),
    upcoming: bind(db, { dueWithin }),
    endpoints: bind(db, endpoints),
    webhooks: bind(db, { ...webhooks, log: deliveryLog, redeliver }),

    /** Runs several reads that all see the database at the same moment. */
    async snapshot<T>(read: (at: ReturnType<typeof readable>) => Promise<T>): Promise<T> {
      const transaction = db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only');
      return transaction.execute((tx) => read(readable(tx)));
    },

    /** A scratch schema for a drill, and what a rebuild needs of a store, in it. `close` drops it. */
    async openScratch() {
      const { schema, db: scratch, close } = await openScratch(db, options);
      return { schema, store: rebuildable(scratch), close };
    },

    /** Calls `listener` when any process has changed a connection or a setting. Returns a function that stops this. */
    onNotice(listener: (notice: Notice) => void): () => void {
      noticeListeners.add(listener);
      return () => noticeListeners.delete(listener);
    },

    /** Calls `listener` when there are new events of any process. Returns a function that stops this. */
    onEvents(listener: () => void): () => void {
      eventListeners.add(listener);
      return () => eventListeners.delete(listener);
    },

    async close(): Promise<void> {
      await subscription.close();
      await db.destroy();
    },
  };
}

/** The time by the database's clock, in epoch milliseconds. */
async function now(db: Database): Promise<number> {
  const { rows } = await sql<{ at: Date }>`SELECT now() AS at`.execute(db);
  return rows[0]!.at.getTime();
}

/** @throws Error if the database does not answer */
async function check(db: Database): Promise<void> {
  await db.selectNoFrom((e) => e.lit(1).as('one')).execute();
}

const removals = {
  ...dueRemovals,
  ...erasures,
  ...removing,
  ...{ hold, holds, release, heldTooLate, isProtected },
  ...{ beginErasing, erasedAmong, restoreTombstones, tombstone, tombstones },
};

/** The part of the store that a rebuild uses. */
const rebuildable = (db: Database) => ({
  ...bind(db, { check }),
  rebuild: bind(db, rebuild),
  versions: bind(db, versions),
  removals: bind(db, removals),
  changes: bind(db, { renew: renewFeed }),
  drills: bind(db, losses),
});

const readable = (db: Database) => ({
  connections: bind(db, {
    ...connections,
    ...tokens,
    ...status,
    adopt,
    changeSettings,
    countHeld,
    countTroubled,
    endHeldChanges,
    freshness,
    lags,
    late,
    schedules,
    setCompanies,
    tagged,
    tagsOf,
    withTags,
  }),
  assets: {
    ...bind(db, { ...assets, search, facets, ...transfers, ...finish, dispatch, overdue, renew }),
    ...batchedLeases(db),
  },
  transcripts: bind(db, { ...transcripts, hits }),
  versions: bind(db, versions),
  counts: bind(db, counts),
  syncs: bind(db, { ...syncs, ...syncLeases, ...waits, requestDue, recordPage, extendLease, endSync }),
  scrub: bind(db, scrub),
  verifications: bind(db, { ...verifications, ...lines }),
});
