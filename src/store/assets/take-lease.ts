import { sql } from 'kysely';
import { prepared } from '../database/prepared.ts';
import type { Database, OwnedAsset } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { type AssetLease, notLeased, workable } from './leases.ts';

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

/** Extends leases. Returns the ids of those that are still leased; for the others, the workers must stop. */
export async function renew(db: Database, leases: AssetLease[], leaseMs: number): Promise<Set<string>> {
  if (leases.length === 0) return new Set();
  const { rows } = await sql<{ id: string }>`
    WITH mine AS (
      SELECT a.id FROM assets a
      JOIN unnest(${leases.map((t) => t.assetId)}::text[], ${leases.map((t) => t.number)}::int[]) AS leases (id, lease)
        ON a.id = leases.id AND a.lease = leases.lease AND a.lease_until IS NOT NULL
      JOIN connections c ON c.id = a.connection_id AND c.status = 'active'
      ORDER BY a.id FOR UPDATE OF a)
    UPDATE assets SET lease_until = ${inMs(leaseMs)}
    FROM mine WHERE assets.id = mine.id
    RETURNING assets.id`.execute(db);
  return new Set(rows.map((row) => row.id));
}
