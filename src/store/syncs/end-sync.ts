import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { reasonFields } from '../../floor/reasons.ts';
import { jsonb } from '../database/jsonb.ts';
import { acceptNames, type Database, type Sync } from '../database/schema.ts';
import { addEvent } from '../events/add-event.ts';
import { requestScheduledOf } from '../verifications/verifications.ts';
import type { SyncLease } from './lease.ts';

/** Assets added while the user was disconnected: their number since the last sync, and their first and last upload dates (ISO 8601). */
type CaughtUp = { since: string; new: number; from: string | null; to: string | null };

/** The result of a sync. `more`: another sync of the connection waits, and the lease is kept for it. */
export type EndedSync = Pick<Sync, 'pages' | 'seen' | 'new' | 'changed' | 'gone'> & {
  more: boolean;
  caughtUp?: CaughtUp;
};

export interface SyncOutcome {
  status: 'done' | 'failed';
  error: Reason | null;
  /** The companies whose changes the sync has held. */
  held?: Reason | null;
}

/**
 * Ends a sync and releases its lease, unless another sync waits. Undefined, and nothing changes, if another process has taken
 * it over or it has ended already. The first complete sync after a reconnect reports what was added meanwhile.
 */
export async function endSync(
  db: Database,
  sync: Sync,
  lease: SyncLease,
  outcome: SyncOutcome,
): Promise<EndedSync | undefined> {
  return db.transaction().execute(async (tx) => {
    const { connectionId } = sync;
    const row = await writeEnd(tx, sync, lease, outcome);
    if (!row) return undefined;
    const { lastSyncAt: last, connectedAt, ...ended } = row;
    if (outcome.status === 'failed') await reportFailure(tx, sync, outcome.error);
    if (sync.mode === 'full') await tx.deleteFrom('sightings').where('syncId', '=', sync.id).execute();
    if (sync.withBucket) {
      const verificationId = await requestScheduledOf(tx, connectionId);
      await tx.updateTable('syncs').set({ verificationId }).where('id', '=', sync.id).execute();
    }
    const isFirstAfterReconnect = last && last < connectedAt && isUnlimited(sync) && outcome.status === 'done';
    return isFirstAfterReconnect ? { ...ended, caughtUp: await reportCaughtUp(tx, connectionId, last) } : ended;
  });
}

/** Adds an event about the assets that were first seen after `last`, the end of the sync before. */
async function reportCaughtUp(tx: Database, connectionId: string, last: Date): Promise<CaughtUp> {
  const { rows } = await sql<{ count: number; from: number | null; to: number | null }>`
    SELECT count(*) AS count, min(upload_date) AS from, max(upload_date) AS to FROM assets
    WHERE connection_id = ${connectionId} AND first_seen_at > ${last}`.execute(tx);
  const { count, from, to } = rows[0]!;
  const caughtUp = { since: last.toISOString(), new: count, from: dateOf(from), to: dateOf(to) };
  await addEvent(tx, { kind: 'connection.caught_up', connectionId, data: caughtUp });
  return caughtUp;
}

/**
 * Writes the end of a sync, and returns the earlier `lastSyncAt`. The connection gets the error of this sync. Without one, a full
 * sync of everything clears it; any other leaves the error of the last such sync, because it does not show that the problem is over.
 */
async function writeEnd(tx: Database, sync: Sync, { owner }: SyncLease, { status, error, held = null }: SyncOutcome) {
  const { connectionId } = sync;
  const errorOfLastFull = sql`(
    SELECT error FROM syncs
    WHERE connection_id = ${connectionId} AND mode = 'full' AND ${syncLimits} = '{}' AND finished_at IS NOT NULL
      AND finished_at >= (SELECT connected_at FROM connections WHERE id = ${connectionId})
    ORDER BY finished_at DESC LIMIT 1)`;
  const isFullOfEverything = sync.mode === 'full' && isUnlimited(sync);
  const lastError = error !== null || isFullOfEverything ? jsonb(error) : errorOfLastFull;
  // A sync requested at this moment finds the lease released, or the dispatcher starts it.
  const { rows } = await sql<EndedSync & { lastSyncAt: Date | null; connectedAt: Date }>`
    WITH before AS (
      SELECT last_sync_at, connected_at, (SELECT new + changed > 0 FROM syncs WHERE id = ${sync.id}) AS news, EXISTS (
        SELECT FROM syncs
        WHERE connection_id = ${connectionId} AND status IN ('waiting', 'running') AND id <> ${sync.id}) AS more
      FROM connections WHERE id = ${connectionId} AND sync_owner = ${owner} FOR UPDATE
    ), ended AS (
      UPDATE connections SET last_error = ${lastError}, ${status === 'done' && isUnlimited(sync) ? sql`last_sync_at = now(),` : sql``}
        news_at = CASE WHEN before.news THEN now() ELSE news_at END,
        sync_owner = CASE WHEN before.more THEN sync_owner END, sync_until = CASE WHEN before.more THEN sync_until END
      FROM before
      WHERE id = ${connectionId} AND sync_owner = ${owner}
        AND EXISTS (SELECT FROM syncs WHERE syncs.id = ${sync.id} AND syncs.status = 'running')
      RETURNING before.*
    ), run AS (
      UPDATE syncs SET status = ${status}, error = ${jsonb(error)}, held = ${jsonb(held)}, position = '{}', finished_at = now()
      FROM ended WHERE syncs.id = ${sync.id} AND syncs.status = 'running'
      RETURNING pages, seen, new, changed, gone
    )
    SELECT ended.*, run.* FROM ended LEFT JOIN run ON true`.execute(tx);
  return rows[0];
}

/** The limits of a sync, as in its request; `{}`: it has none. */
export const syncLimits = sql`(scope - ${acceptNames}::text[])`;

/** The sync covers everything that its connection can read. */
function isUnlimited({ scope }: Sync): boolean {
  return Object.keys(scope).every((field) => acceptNames.some((name) => name === field));
}

/** Adds an event, unless the last sync of everything had failed, too: it would be repeated every few minutes. */
async function reportFailure(tx: Database, { id, connectionId, mode }: Sync, error: Reason | null): Promise<void> {
  const before = await tx
    .selectFrom('syncs')
    .select('status')
    .where('connectionId', '=', connectionId)
    .where('finishedAt', '>=', tx.selectFrom('connections').select('connectedAt').where('id', '=', connectionId))
    .where(sql<boolean>`${syncLimits} = '{}'`)
    .where('id', '<>', id)
    .orderBy('finishedAt', 'desc')
    .limit(1)
    .executeTakeFirst();
  if (before?.status === 'failed') return;
  await addEvent(tx, {
    kind: 'sync.failed',
    connectionId,
    data: { syncId: id, mode, ...(error && reasonFields(error)) },
  });
}

/** Null if it is no valid date. */
function dateOf(ms: number | null): string | null {
  return ms === null || Number.isNaN(new Date(ms).getTime()) ? null : new Date(ms).toISOString();
}
