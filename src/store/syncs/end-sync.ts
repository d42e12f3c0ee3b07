import { sql } from 'kysely';
import type { Database, Sync } from '../database/schema.ts';
import { addEvent } from '../events/add-event.ts';
import { requestRoutineOf } from '../verifications/verifications.ts';

/** What has come in while nobody looked: since the last run, so many assets, uploaded between these dates (ISO 8601). */
export type CaughtUp = { since: string; new: number; from: string | null; to: string | null };

/** A run that has ended: what it found, and whether another one waits, for which its owner keeps the lease. */
export type EndedSync = Pick<Sync, 'pages' | 'seen' | 'new' | 'changed' | 'gone'> & {
  more: boolean;
  caughtUp?: CaughtUp;
};

export interface SyncOutcome {
  status: 'done' | 'failed';
  error: string | null;
}

/**
 * Ends a run and gives up its lease, unless another run waits. Undefined, and nothing happens, when another process has
 * taken it over or it has ended before. The first whole run after the user has connected again reports what came in meanwhile.
 */
export async function endSync(
  db: Database,
  sync: Sync,
  owner: string,
  outcome: SyncOutcome,
): Promise<EndedSync | undefined> {
  return db.transaction().execute(async (tx) => {
    const { connectionId } = sync;
    const row = await end(tx, sync, owner, outcome);
    if (!row) return undefined;
    const { lastSyncAt: last, connectedAt, ...ended } = row;
    if (outcome.status === 'failed') await tellOfFailure(tx, sync, outcome.error);
    if (sync.mode === 'full') await tx.deleteFrom('sightings').where('syncId', '=', sync.id).execute();
    if (sync.withBucket) {
      const verificationId = await requestRoutineOf(tx, connectionId);
      await tx.updateTable('syncs').set({ verificationId }).where('id', '=', sync.id).execute();
    }
    if (!last || last >= connectedAt || !isWhole(sync) || outcome.status !== 'done') return ended;
    const { rows } = await sql<{ count: number; from: number | null; to: number | null }>`
      SELECT count(*) AS count, min(upload_date) AS from, max(upload_date) AS to FROM assets
      WHERE connection_id = ${connectionId} AND first_seen_at > ${last}`.execute(tx);
    const { count, from, to } = rows[0]!;
    const caughtUp = { since: last.toISOString(), new: count, from: dateOf(from), to: dateOf(to) };
    await addEvent(tx, { kind: 'connection.caught_up', connectionId, data: caughtUp });
    return { ...ended, caughtUp };
  });
}

/**
 * Writes the end of a run, and returns `lastSyncAt` as it was before. The connection's last error is that of this run, or
 * else of the last full run since the user connected: a smaller run does not show that it is over.
 */
async function end(
  tx: Database,
  sync: Sync,
  owner: string,
  { status, error }: SyncOutcome,
): Promise<(EndedSync & { lastSyncAt: Date | null; connectedAt: Date }) | undefined> {
  const { connectionId } = sync;
  // A company that was named may have been all that there was to read.
  const full = sql`mode = 'full' AND (scope - 'acceptGone' = '{}' OR scope - 'acceptGone' = (
      SELECT jsonb_build_object('companyId', min(company_id)) FROM access
      WHERE connection_id = ${connectionId} AND gained_at <= coalesce(finished_at, now())
        AND (lost_at IS NULL OR lost_at > coalesce(finished_at, now()))
      HAVING count(*) = 1))`;
  const known = sql`(
    SELECT error FROM syncs
    WHERE connection_id = ${connectionId} AND ${full} AND finished_at IS NOT NULL
      AND finished_at >= (SELECT connected_at FROM connections WHERE id = ${connectionId})
    ORDER BY finished_at DESC LIMIT 1)`;
  const shown = sql`CASE WHEN EXISTS (SELECT FROM syncs WHERE id = ${sync.id} AND ${full}) THEN NULL ELSE ${known} END`;
  const lastError = error !== null ? sql`${error}::text` : sync.mode === 'full' ? shown : known;
  // A run that is requested at this very moment finds the lease given up, or is taken up by the dispatcher.
  const { rows } = await sql<EndedSync & { lastSyncAt: Date | null; connectedAt: Date }>`
    WITH before AS (
      SELECT last_sync_at, connected_at, EXISTS (
        SELECT FROM syncs
        WHERE connection_id = ${connectionId} AND status IN ('waiting', 'running') AND id <> ${sync.id}) AS more
      FROM connections WHERE id = ${connectionId} AND sync_owner = ${owner} FOR UPDATE
    ), ended AS (
      UPDATE connections SET last_error = ${lastError}, ${status === 'done' ? sql`last_sync_at = now(),` : sql``}
        sync_owner = CASE WHEN before.more THEN sync_owner END, sync_until = CASE WHEN before.more THEN sync_until END
      FROM before
      WHERE id = ${connectionId} AND sync_owner = ${owner}
        AND EXISTS (SELECT FROM syncs WHERE syncs.id = ${sync.id} AND syncs.status = 'running')
      RETURNING before.*
    ), run AS (
      UPDATE syncs SET status = ${status}, error = ${error}, position = '{}', finished_at = now()
      FROM ended WHERE syncs.id = ${sync.id} AND syncs.status = 'running'
      RETURNING pages, seen, new, changed, gone
    )
    SELECT ended.*, run.* FROM ended LEFT JOIN run ON true`.execute(tx);
  return rows[0];
}

/** Over all that its connection can read. */
function isWhole({ scope: { acceptGone: _, ...part } }: Sync): boolean {
  return Object.keys(part).length === 0;
}

/** The first of a row of failures is told; the others would say it every few minutes. */
async function tellOfFailure(tx: Database, { id, connectionId, mode }: Sync, reason: string | null): Promise<void> {
  const before = await tx
    .selectFrom('syncs')
    .select('status')
    .where('connectionId', '=', connectionId)
    .where('finishedAt', 'is not', null)
    .where('id', '<>', id)
    .orderBy('finishedAt', 'desc')
    .limit(1)
    .executeTakeFirst();
  if (before?.status === 'failed') return;
  await addEvent(tx, { kind: 'sync.failed', connectionId, data: { syncId: id, mode, reason } });
}

/** Null for what is no date, or none that can be written. */
function dateOf(ms: number | null): string | null {
  return ms === null || Number.isNaN(new Date(ms).getTime()) ? null : new Date(ms).toISOString();
}
