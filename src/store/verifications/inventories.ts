import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

/** So long after it was written, an inventory that had assets on their way is written again, once they have arrived. */
const rewriteAfter = sql`interval '1 hour'`;

/** Which days have their inventory, and who is writing one. */

/**
 * Takes a day's inventory on, for `leaseMs`: when it is not written yet, or was while assets were on their way, or in any
 * case when it was asked for. False: nothing is to be done, or another process is at it.
 */
export async function take(
  db: Database,
  day: string,
  owner: string,
  leaseMs: number,
  options: { asked?: boolean } = {},
): Promise<boolean> {
  const { rows } = await sql`
    INSERT INTO inventories AS i (day, owner, until)
    SELECT ${day}::date, ${owner}, ${inMs(leaseMs)} WHERE EXISTS (SELECT 1 FROM assets)
    ON CONFLICT (day) DO UPDATE SET owner = excluded.owner, until = excluded.until
      WHERE (i.until IS NULL OR i.until < now()) AND (
        i.written_at IS NULL OR ${options.asked ?? false} OR (
          i.waiting > 0 AND i.written_at < now() - ${rewriteAfter}
          AND NOT EXISTS (SELECT 1 FROM assets WHERE state IN ('pending', 'transferring') AND skipped IS NULL)))
    RETURNING day`.execute(db);
  return rows.length > 0;
}

/** Keeps the lease. False when it is lost. */
export async function renew(db: Database, day: string, owner: string, leaseMs: number): Promise<boolean> {
  const result = await sql`
    UPDATE inventories SET until = ${inMs(leaseMs)}
    WHERE day = ${day}::date AND owner = ${owner}`.execute(db);
  return wroteAny(result);
}

export async function written(db: Database, day: string, owner: string, waiting: number): Promise<void> {
  await sql`
    UPDATE inventories SET owner = NULL, until = NULL, written_at = now(), waiting = ${waiting}
    WHERE day = ${day}::date AND owner = ${owner}`.execute(db);
}

/** Gives it back unwritten; tried again after `waitMs`. */
export async function release(db: Database, day: string, owner: string, waitMs: number): Promise<void> {
  await sql`
    UPDATE inventories SET owner = NULL, until = ${inMs(waitMs)}
    WHERE day = ${day}::date AND owner = ${owner}`.execute(db);
}
