import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

/** When an inventory that lacked pending assets is written again at the earliest. */
const rewriteAfter = sql`interval '1 hour'`;

/**
 * Leases the inventory of a day, if it is not written yet, lacked assets that were pending then, or is requested (`onRequest`). False:
 * there is nothing to do, or another process holds it.
 */
export async function take(
  db: Database,
  day: string,
  owner: string,
  leaseMs: number,
  options: { onRequest?: boolean } = {},
): Promise<boolean> {
  const { rows } = await sql`
    INSERT INTO inventories AS i (day, owner, until)
    SELECT ${day}::date, ${owner}, ${inMs(leaseMs)} WHERE EXISTS (SELECT 1 FROM assets)
    ON CONFLICT (day) DO UPDATE SET owner = excluded.owner, until = excluded.until, written_at = NULL
      WHERE (i.until IS NULL OR i.until < now()) AND (
        i.written_at IS NULL OR ${options.onRequest ?? false} OR (
          i.waiting > 0 AND i.written_at < now() - ${rewriteAfter}
          AND NOT EXISTS (SELECT 1 FROM assets WHERE state IN ('pending', 'transferring') AND NOT skipped)))
    RETURNING day`.execute(db);
  return rows.length > 0;
}

/** Extends the lease. False if it is lost. */
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

/** Releases an inventory that was not written, for another attempt after `waitMs`. */
export async function release(db: Database, day: string, owner: string, waitMs: number): Promise<void> {
  await sql`
    UPDATE inventories SET owner = NULL, until = ${inMs(waitMs)}
    WHERE day = ${day}::date AND owner = ${owner}`.execute(db);
}
