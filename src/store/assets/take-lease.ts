import { sql } from 'kysely';
import { prepared } from '../database/prepared.ts';
import type { Database, OwnedAsset } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { type AssetLease, notLeased, stillLeased, workable } from './leases.ts';

export async function takeAssets(
  db: Database,
  requests: { id: string; leaseMs: number }[],
): Promise<(OwnedAsset | undefined)[]> {
  const ids = requests.map(({ id }) => id);
  // All workers request the same time.
  const leaseMs = Math.min(...requests.map(({ leaseMs }) => leaseMs));
  // Locks in the order of ids, like every statement that locks several assets, so that there are no deadlocks. Selects by
  // ids alone, or the planner would read all queued assets.
  const { rows } = await prepared(
    db,
    sql<OwnedAsset>`
    WITH locked AS MATERIALIZED (
      SELECT * FROM assets WHERE id = ANY(${ids}::text[]) ORDER BY id FOR UPDATE
    ), free AS (
      SELECT assets.id FROM locked AS assets WHERE queued_at IS NOT NULL AND ${notLeased} AND ${workable}
    )
    UPDATE assets SET lease = lease + 1, lease_until = ${inMs(leaseMs)},
      state = CASE state WHEN 'pending' THEN 'transferring' ELSE state END
    FROM free WHERE assets.id = free.id AND assets.id = ANY(${ids}::text[])
    RETURNING assets.*, now() AS leased_at, (SELECT settings FROM connections WHERE id = assets.connection_id) AS settings`,
  );
  const taken = new Map(rows.map((row) => [row.id, row]));
  const left = ids.filter((id) => !taken.has(id));
  if (left.length > 0) {
    // If this fails, the dispatcher finds these assets when their jobs are overdue.
    await sql`
      WITH stopped AS (
        SELECT id FROM assets WHERE id = ANY(${left}::text[]) AND queued_at IS NOT NULL AND ${notLeased} AND NOT ${workable}
        ORDER BY id FOR UPDATE
      )
      UPDATE assets SET queued_at = NULL FROM stopped WHERE assets.id = stopped.id`
      .execute(db)
      .catch(() => {});
  }
  // Each row is returned to one caller only; duplicates get undefined.
  return ids.map((id) => {
    const row = taken.get(id);
    taken.delete(id);
    return row;
  });
}

/** Extends a lease. False: another worker has the asset, or its connection may no longer work. */
export async function renew(db: Database, lease: AssetLease, leaseMs: number): Promise<boolean> {
  const { numAffectedRows } = await sql`
    UPDATE assets SET lease_until = ${inMs(leaseMs)} WHERE ${stillLeased(lease)}
      AND EXISTS (SELECT FROM connections c WHERE c.id = assets.connection_id AND c.status = 'active')`.execute(db);
  return numAffectedRows === 1n;
}
