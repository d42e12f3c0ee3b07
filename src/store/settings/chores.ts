import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { inMs, msAgo } from '../database/time.ts';

/**
 * True if this chore is due and this process must do it. Unless it reports it done, it is due again in `retryMs`. With `graceMs`, a
 * chore that is new, or late by more than that, is put off by as much: the clock may be wrong, or the database rebuilt, and what
 * it would remove could not be brought back. A due time further ahead than `mostMs` was written while a clock was ahead: the
 * chore is due now.
 */
export async function take(
  db: Database,
  name: string,
  retryMs: number,
  { graceMs, mostMs }: { graceMs?: number | undefined; mostMs?: number } = {},
): Promise<boolean> {
  if (graceMs !== undefined) {
    const putOff = await sql`
      INSERT INTO chores (name, due_at) VALUES (${name}, ${inMs(graceMs)})
      ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at WHERE chores.due_at < ${msAgo(graceMs)}
      RETURNING name`.execute(db);
    if (putOff.rows.length > 0) return false;
  }
  const { rows } = await sql`
    INSERT INTO chores (name, due_at) VALUES (${name}, ${inMs(retryMs)})
    ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at
      WHERE chores.due_at <= now() OR chores.due_at > ${mostMs === undefined ? sql`'infinity'` : inMs(mostMs)}
    RETURNING name`.execute(db);
  return rows.length > 0;
}

export async function done(db: Database, name: string, everyMs: number): Promise<void> {
  await sql`UPDATE chores SET due_at = ${inMs(everyMs)} WHERE name = ${name}`.execute(db);
}

/**
 * Does `work` if a chore is due, in the one process that finds it so: `firstMs` after the first connection, and then every `everyMs`.
 * Returns whether it was due.
 */
export async function doIfDue(
  db: Database,
  { name, everyMs, firstMs }: { name: string; everyMs: number; firstMs: number },
  work: (tx: Database) => Promise<void>,
): Promise<boolean> {
  const { rows } = await sql<{ waits: boolean }>`
    SELECT due_at > now() AND due_at <= ${inMs(everyMs)} AS waits FROM chores WHERE name = ${name}`.execute(db);
  if (rows[0]?.waits) return false;
  return db.transaction().execute(async (tx) => {
    await sql`
      INSERT INTO chores (name, due_at)
      SELECT ${name}, min(connected_at) + ${firstMs} * interval '1 ms' FROM connections HAVING count(*) > 0
      ON CONFLICT (name) DO NOTHING`.execute(tx);
    const isDue = wroteAny(
      await sql`UPDATE chores SET due_at = ${inMs(everyMs)} WHERE name = ${name} AND due_at <= now()`.execute(tx),
    );
    if (isDue) await work(tx);
    // The interval was longer before.
    else {
      await sql`
        UPDATE chores SET due_at = ${inMs(everyMs)} WHERE name = ${name} AND due_at > ${inMs(everyMs)}`.execute(tx);
    }
    return isDue;
  });
}
