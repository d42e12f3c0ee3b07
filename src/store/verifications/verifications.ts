import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { jsonb } from '../database/jsonb.ts';
import { wroteAny } from '../database/results.ts';
import type { Database, Verification, VerificationOptions } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';
import { doIfDue } from '../settings/chores.ts';

/** How many ended verifications of each kind are kept with their lines. */
const keptPerKind = 50;

/** The kinds: scheduled, deep, and others. */
const kind = sql`options ? 'scheduled', options @> '{"deep": true}'`;

/**
 * Requests a scheduled verification, of one connection or of all (null): it compares the database and the bucket, and repairs
 * what is missing or differs. Returns the id of the new one, or of one that waits already.
 */
export async function requestScheduledOf(db: Database, connectionId: string | null): Promise<string> {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO verifications (id, connection_id, options, status)
    VALUES (${randomUUID()}, ${connectionId}, '{"scheduled": true, "repair": true}', 'waiting')
    ON CONFLICT (coalesce(connection_id, '')) WHERE status = 'waiting' AND options->'scheduled' = 'true'
      DO UPDATE SET options = excluded.options
    RETURNING id`.execute(db);
  await deleteOld(db);
  return rows[0]!.id;
}

async function deleteOld(db: Database): Promise<void> {
  await sql`
    DELETE FROM verifications WHERE id IN (
      SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY ${kind} ORDER BY finished_at DESC, id) AS rank
        FROM verifications WHERE finished_at IS NOT NULL) AS finished
      WHERE rank > ${keptPerKind})`.execute(db);
}

/** Requests a verification. One runs at a time; the others wait. */
export async function request(db: Database, options: VerificationOptions, connectionId?: string): Promise<string> {
  const id = randomUUID();
  await db
    .insertInto('verifications')
    .values({ id, connectionId: connectionId ?? null, options, status: 'waiting' })
    .execute();
  await deleteOld(db);
  return id;
}

/**
 * Requests the scheduled verification of the whole mirror if it is due: an interval after the first connection, and then every
 * interval. True in the one process that requested it.
 */
export async function requestScheduledIfDue(db: Database, intervalMs: number): Promise<boolean> {
  return doIfDue(db, { name: 'bucket', everyMs: intervalMs, firstMs: intervalMs }, requestScheduled);
}

/** Requests the scheduled verification of the whole mirror now. */
export async function requestScheduled(db: Database): Promise<void> {
  await requestScheduledOf(db, null);
}

/** How many verifications wait or run. */
export async function open(db: Database) {
  const { rows } = await sql<{ waiting: number; running: number }>`
    SELECT count(*) FILTER (WHERE status = 'waiting') AS waiting, count(*) FILTER (WHERE status = 'running') AS running
    FROM verifications WHERE status IN ('waiting', 'running')`.execute(db);
  return rows[0]!;
}

/** Leases the interrupted or oldest waiting verification to `owner`. Undefined while another process runs one. */
export async function takeNext(db: Database, owner: string, leaseMs: number): Promise<Verification | undefined> {
  const { rows } = await sql<Verification>`
    UPDATE verifications SET status = 'running', started_at = coalesce(started_at, now()), owner = ${owner},
      until = ${inMs(leaseMs)}
    WHERE id = (
      SELECT id FROM verifications WHERE status IN ('waiting', 'running')
      ORDER BY status = 'waiting', requested_at LIMIT 1 FOR UPDATE)
      AND (until IS NULL OR until < now())
    RETURNING *`.execute(db);
  return rows[0];
}

/** Extends the lease. False if it is lost. */
export async function renew(db: Database, id: string, owner: string, leaseMs: number): Promise<boolean> {
  const result = await sql`
    UPDATE verifications SET until = ${inMs(leaseMs)} WHERE id = ${id} AND owner = ${owner}`.execute(db);
  return wroteAny(result);
}

/** Releases the lease; another process may continue. */
export async function release(db: Database, id: string, owner: string): Promise<void> {
  await sql`UPDATE verifications SET owner = NULL, until = NULL WHERE id = ${id} AND owner = ${owner}`.execute(db);
}

/** Releases the lease after an error; the next attempt is in `waitMs`. Returns the number of failures since the last progress. */
export async function postpone(
  db: Database,
  id: string,
  owner: string,
  error: Reason,
  waitMs: number,
): Promise<number> {
  const { rows } = await sql<{ failures: number }>`
    UPDATE verifications SET owner = NULL, until = ${inMs(waitMs)}, error = ${jsonb(error)},
      position = position || jsonb_build_object('failures', coalesce((position->>'failures')::int, 0) + 1)
    WHERE id = ${id} AND owner = ${owner} RETURNING (position->>'failures')::int AS failures`.execute(db);
  return rows[0]?.failures ?? 0;
}

/** Ends a verification. With `differs`, an event reports what it found. */
export async function done(db: Database, id: string, owner: string, differs?: Record<string, unknown>): Promise<void> {
  await db.transaction().execute(async (tx) => {
    const ended = await tx
      .updateTable('verifications')
      .set({ status: 'done', error: null, owner: null, until: null, finishedAt: sql`now()` })
      .where('id', '=', id)
      .where('owner', '=', owner)
      .returning('connectionId')
      .executeTakeFirst();
    if (!ended || !differs) return;
    const data = { verificationId: id, ...differs };
    await addEvent(tx, { kind: 'bucket.differs', connectionId: ended.connectionId, data });
  });
}

/** Ends a verification that cannot continue, after its lease was released. */
export async function failed(db: Database, id: string, error: Reason): Promise<void> {
  await sql`
    UPDATE verifications SET status = 'failed', error = ${jsonb(error)}, until = NULL, finished_at = now()
    WHERE id = ${id} AND owner IS NULL`.execute(db);
}

/** The latest verifications, newest first: open ones and those that are kept. */
export async function list(
  db: Database,
  filter: { connectionId?: string | undefined; limit: number },
): Promise<Verification[]> {
  return db
    .selectFrom('verifications')
    .selectAll()
    .$if(filter.connectionId !== undefined, (query) => query.where('connectionId', '=', filter.connectionId!))
    .orderBy('requestedAt', 'desc')
    .orderBy('id', 'desc')
    .limit(filter.limit)
    .execute();
}

export async function get(db: Database, id: string): Promise<Verification | undefined> {
  return db.selectFrom('verifications').selectAll().where('id', '=', id).executeTakeFirst();
}

/** The verifications that ended from `from` to before `to`, and that are still kept. */
export function endedIn(
  db: Database,
  { from, to, connectionId }: { from: Date; to: Date; connectionId: string | undefined },
): Promise<Verification[]> {
  return db
    .selectFrom('verifications')
    .selectAll()
    .where('finishedAt', '>=', from)
    .where('finishedAt', '<', to)
    .$if(connectionId !== undefined, (query) =>
      query.where((e) => e.or([e('connectionId', '=', connectionId!), e('connectionId', 'is', null)])),
    )
    .orderBy('finishedAt')
    .execute();
}
