import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database, Verification, VerificationOptions } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';

/** How many are kept, with their lines, after they have ended: of those that operators asked for, and of the others. */
const kept = 20;

/**
 * The mirror's own comparison of the records and the bucket, of one connection or all: what is missing or differs is made
 * again. One that waits already is the one that is meant. Returns its id.
 */
export async function requestRoutineOf(db: Database, connectionId: string | null): Promise<string> {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO verifications (id, connection_id, options, status)
    VALUES (${randomUUID()}, ${connectionId}, '{"routine": true, "repair": true}', 'waiting')
    ON CONFLICT (coalesce(connection_id, '')) WHERE status = 'waiting' AND options->'routine' = 'true'
      DO UPDATE SET options = excluded.options
    RETURNING id`.execute(db);
  await forget(db);
  return rows[0]!.id;
}

async function forget(db: Database): Promise<void> {
  await sql`
    DELETE FROM verifications WHERE id IN (
      SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY options ? 'routine' ORDER BY finished_at DESC, id) AS place
        FROM verifications WHERE finished_at IS NOT NULL) AS finished
      WHERE place > ${kept})`.execute(db);
}

/** Verifications that were asked for: one runs at a time, the others wait. */

export async function request(db: Database, options: VerificationOptions, connectionId?: string): Promise<string> {
  const id = randomUUID();
  await db
    .insertInto('verifications')
    .values({
      id,
      connectionId: connectionId ?? null,
      options: JSON.stringify(options),
      status: 'waiting',
    })
    .execute();
  await forget(db);
  return id;
}

/**
 * Asks for the routine one of the whole mirror when it is due: every interval, for the first time when one has passed
 * since there is a connection. Whichever process comes first does.
 */
export async function routine(db: Database, intervalMs: number): Promise<boolean> {
  const interval = sql`${intervalMs} * interval '1 ms'`;
  const { rows } = await sql<{ waits: boolean }>`
    SELECT due_at > now() AND due_at <= now() + ${interval} AS waits FROM chores WHERE name = 'bucket'`.execute(db);
  if (rows[0]?.waits) return false;
  return db.transaction().execute(async (tx) => {
    await sql`
      INSERT INTO chores (name, due_at)
      SELECT 'bucket', min(connected_at) + ${interval} FROM connections HAVING count(*) > 0
      ON CONFLICT (name) DO NOTHING`.execute(tx);
    const { numAffectedRows: due } = await sql`
      UPDATE chores SET due_at = now() + ${interval} WHERE name = 'bucket' AND due_at <= now()`.execute(tx);
    if (due) await requestRoutineOf(tx, null);
    // Of an interval that was longer before.
    else {
      await sql`
        UPDATE chores SET due_at = now() + ${interval}
        WHERE name = 'bucket' AND due_at > now() + ${interval}`.execute(tx);
    }
    return Boolean(due);
  });
}

/** Asks for the routine one of the whole mirror now. */
export async function requestRoutine(db: Database): Promise<void> {
  await requestRoutineOf(db, null);
}

/** How many wait or are running. */
export async function open(db: Database): Promise<{ waiting: number; running: number }> {
  const { rows } = await sql<{ waiting: number; running: number }>`
    SELECT count(*) FILTER (WHERE status = 'waiting') AS waiting, count(*) FILTER (WHERE status = 'running') AS running
    FROM verifications WHERE status IN ('waiting', 'running')`.execute(db);
  return rows[0]!;
}

/** The one that was interrupted, or the oldest that waits, for `owner`; undefined while another process is at one. */
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

/** Keeps the lease. False when it is lost. */
export async function renew(db: Database, id: string, owner: string, leaseMs: number): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('verifications')
    .set({ until: sql`${inMs(leaseMs)}` })
    .where('id', '=', id)
    .where('owner', '=', owner)
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** Gives it back as far as it is. */
export async function release(db: Database, id: string, owner: string): Promise<void> {
  await db
    .updateTable('verifications')
    .set({ owner: null, until: null })
    .where('id', '=', id)
    .where('owner', '=', owner)
    .execute();
}

/** Gives it back for now. Returns how often in a row that was so, without any progress. */
export async function putOff(db: Database, id: string, owner: string, error: string, waitMs: number): Promise<number> {
  const { rows } = await sql<{ failures: number }>`
    UPDATE verifications SET owner = NULL, until = ${inMs(waitMs)}, error = ${error},
      position = position || jsonb_build_object('failures', coalesce((position->>'failures')::int, 0) + 1)
    WHERE id = ${id} AND owner = ${owner} RETURNING (position->>'failures')::int AS failures`.execute(db);
  return rows[0]?.failures ?? 0;
}

/** It has ended; with `differs`, people are told of what it found. */
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
    const { connectionId } = ended;
    const data = { verificationId: id, ...differs };
    await addEvent(tx, { kind: 'bucket.differs', ...(connectionId && { connectionId }), data });
  });
}

/** One that nobody has, and that cannot go on. */
export async function failed(db: Database, id: string, error: string): Promise<void> {
  await db
    .updateTable('verifications')
    .set({ status: 'failed', error, until: null, finishedAt: sql`now()` })
    .where('id', '=', id)
    .where('owner', 'is', null)
    .execute();
}

export async function get(db: Database, id: string): Promise<Verification | undefined> {
  return db.selectFrom('verifications').selectAll().where('id', '=', id).executeTakeFirst();
}
