import { sql } from 'kysely';
import { addEvent } from './events.ts';
import { moveMark, passed, type QuietPage } from './quiet-page.ts';
import type { Database, Sync } from './schema.ts';
import { requestRoutine } from './verifications.ts';

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
 * The run has ended, and with it the lease, unless another one waits. Undefined, and nothing happens, when another process
 * has taken it over, or when it has ended before. The connection's last error is that of this run, or else of the last full
 * one since the user has connected: a run over less does not show that to be over. The first run that is done after the user
 * has connected again tells what has come in since the last one before.
 */
export async function endSync(
  db: Database,
  sync: Sync,
  owner: string,
  outcome: SyncOutcome,
): Promise<EndedSync | undefined> {
  return db.transaction().execute(async (tx) => {
    const { connectionId } = sync;
    const before = await tx
      .selectFrom('connections')
      .select(['lastSyncAt', 'connectedAt'])
      .where('id', '=', connectionId)
      .forUpdate()
      .executeTakeFirst();
    const ended = await end(tx, sync, owner, outcome);
    if (!before || !ended) return undefined;
    if (outcome.status === 'failed') await tellOfFailure(tx, sync, outcome.error);
    if (sync.mode === 'full') await tx.deleteFrom('sightings').where('syncId', '=', sync.id).execute();
    if (sync.withBucket) {
      const verificationId = await requestRoutine(tx, connectionId);
      await tx.updateTable('syncs').set({ verificationId }).where('id', '=', sync.id).execute();
    }
    const last = before.lastSyncAt;
    if (!last || last >= before.connectedAt || !isWhole(sync) || outcome.status !== 'done') return ended;
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
 * The same in one statement, together with the last page of the run if nothing was on it. Undefined, and nothing happens,
 * also when there is more to do, or to tell.
 */
export async function endPlainly(
  db: Database,
  sync: Sync,
  owner: string,
  outcome: SyncOutcome,
  passing?: QuietPage,
): Promise<EndedSync | undefined> {
  if (outcome.status !== 'done' || sync.mode !== 'incremental' || sync.withBucket) return undefined;
  return end(db, sync, owner, outcome, { plain: true, passing });
}

/**
 * The end of a run, in one statement. A run that is asked for in this very moment finds the lease given up, or is taken up
 * by the dispatcher. `plain`: only if nobody is to be told what came in while the user was not connected.
 */
async function end(
  db: Database,
  sync: Sync,
  owner: string,
  { status, error }: SyncOutcome,
  { plain = false, passing }: { plain?: boolean; passing?: QuietPage | undefined } = {},
): Promise<EndedSync | undefined> {
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
  const prepared = passing ? sql`/* prepared: end_passing */` : sql`/* prepared: end_sync */`;
  const shown = sql`CASE WHEN EXISTS (SELECT FROM syncs WHERE id = ${sync.id} AND ${full}) THEN NULL ELSE ${known} END`;
  const lastError = error !== null ? sql`${error}::text` : sync.mode === 'full' ? shown : known;
  const { rows } = await sql<EndedSync>`
    WITH ended AS (
      UPDATE connections SET last_error = ${lastError}, ${status === 'done' ? sql`last_sync_at = now(),` : sql``}
        sync_owner = CASE WHEN others.wait THEN sync_owner END, sync_until = CASE WHEN others.wait THEN sync_until END
      FROM (SELECT EXISTS (
        SELECT FROM syncs
        WHERE connection_id = ${connectionId} AND status IN ('waiting', 'running') AND id <> ${sync.id}) AS wait) AS others
      WHERE id = ${connectionId} AND sync_owner = ${owner}
        AND EXISTS (SELECT FROM syncs WHERE syncs.id = ${sync.id} AND syncs.status = 'running')
        ${plain ? sql`AND status = 'active' AND (last_sync_at IS NULL OR last_sync_at >= connected_at)` : sql``}
      RETURNING id, others.wait AS more
    ), run AS (
      UPDATE syncs SET status = ${status}, error = ${error}, position = '{}', finished_at = now()
        ${passing ? sql`, ${passed(passing)}` : sql``}
      FROM ended WHERE syncs.id = ${sync.id} AND syncs.status = 'running'
      RETURNING pages, seen, new, changed, gone
    ) ${passing ? sql`, moved AS (${moveMark(passing, sql`ended`)})` : sql``}
    SELECT ended.more, run.* FROM ended LEFT JOIN run ON true ${plain && error === null ? prepared : sql``}`.execute(
    db,
  );
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
