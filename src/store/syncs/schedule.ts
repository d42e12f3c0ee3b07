import { sql } from 'kysely';
import { acceptNames, type Database } from '../database/schema.ts';

/** In ms: between incremental syncs of an idle and of an active connection, and between full syncs. */
export interface SyncIntervals {
  interval: number;
  intervalActive: number;
  reconcileInterval: number;
}

/**
 * The incremental syncs of a connection. `interval`: ms between them now, and `reason`: its own setting, recent uploads, or neither.
 * `next`: when the next one is due.
 */
export interface SyncSchedule {
  id: string;
  interval: number;
  reason: 'set' | 'active' | 'idle';
  next: Date;
}

/** After news, this many syncs follow at the shortest interval; then it doubles in periods of the same length. */
const syncsAfterNews = 4;

/** The time between incremental syncs of a connection, in ms. One that was set for it is kept. Others are short after news. */
const pollInterval = ({ interval, intervalActive }: SyncIntervals) => sql`coalesce(
  (settings->>'syncInterval')::float8,
  least(${interval}::float8, ${intervalActive}::float8 * power(2, least(60, floor(
    greatest(0, ${epochMs('now()')} - ${epochMs("coalesce(news_at, 'epoch')")}) / ${syncsAfterNews * intervalActive}::float8)))))`;

const epochMs = (at: string) => sql`date_part('epoch', ${sql.raw(at)}) * 1000`;

/** Each connection has its own moment in an interval, so that a thousand of them are not synced at the same instant. */
const offset = sql`abs(hashtext(id)::float8)`;

/** The number of the interval that contains `at`, shifted per connection. */
const intervalOf = (at: string, every: unknown) => sql`floor((${epochMs(at)} - ${offset}) / ${every})`;

const isDue = (since: string, every: unknown) => sql`${intervalOf('now()', every)} > ${intervalOf(since, every)}`;

/**
 * The end of an INSERT: a sync of the same scope that waits already is used. One of everything becomes a full one if asked. One that
 * accepts changes accepts all until now.
 */
export const unlessWaiting = sql`
  ON CONFLICT (connection_id, (CASE WHEN scope = '{}' THEN '' ELSE mode END), md5(scope::text)) WHERE status = 'waiting'
  DO UPDATE SET mode = CASE WHEN excluded.mode = 'full' THEN 'full' ELSE syncs.mode END,
    requested_at = CASE WHEN excluded.scope ?| ${acceptNames}::text[] THEN now() ELSE syncs.requested_at END,
    with_bucket = syncs.with_bucket OR excluded.with_bucket`;

/** Requests scheduled syncs that are due, at most `limit`. Returns their connections. */
export async function requestDue(db: Database, intervals: SyncIntervals, limit: number): Promise<string[]> {
  const fullIsDue = isDue('scheduled_full_at', sql`${intervals.reconcileInterval}::float8`);
  const { rows } = await sql<{ connectionId: string }>`
    WITH due AS (
      SELECT id, CASE WHEN ${fullIsDue} THEN 'full' ELSE 'incremental' END AS mode FROM connections
      WHERE status = 'active' AND (${isDue('scheduled_sync_at', pollInterval(intervals))} OR ${fullIsDue})
      ORDER BY scheduled_sync_at LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED
    ), scheduled AS (
      UPDATE connections SET scheduled_sync_at = now(),
        scheduled_full_at = CASE WHEN mode = 'full' THEN now() ELSE scheduled_full_at END
      FROM due WHERE connections.id = due.id
    )
    INSERT INTO syncs (id, connection_id, mode, status) SELECT gen_random_uuid(), id, mode, 'waiting' FROM due
    ${unlessWaiting} RETURNING connection_id`.execute(db);
  return rows.map(({ connectionId }) => connectionId);
}

/** The schedules of these connections, in any order. */
export async function schedules(db: Database, ids: string[], intervals: SyncIntervals): Promise<SyncSchedule[]> {
  const next = sql`(${intervalOf('scheduled_sync_at', sql`ms`)} + 1) * ms + ${offset}`;
  const { rows } = await sql<SyncSchedule>`
    SELECT id, ms AS interval, greatest(now(), to_timestamp((${next}) / 1000)) AS next,
      CASE WHEN settings ? 'syncInterval' THEN 'set' WHEN ms < ${intervals.interval} THEN 'active' ELSE 'idle' END AS reason
    FROM (SELECT id, settings, scheduled_sync_at, ${pollInterval(intervals)} AS ms FROM connections) AS connection
    WHERE id = ANY(${ids})`.execute(db);
  return rows;
}
