import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import type { Counted } from './states.ts';

/**
 * Counts of assets by connection, company and state, without reading the assets. To avoid lock waits, triggers write the
 * changes of each statement into a new row; `fold` adds these up from time to time. The sum of both is always exact.
 */
const rows = (where: RawBuilder<unknown> = sql``) => sql`
    (SELECT * FROM asset_counts ${where} UNION ALL
      SELECT connection_id, company_id, state, skipped, assets, bytes, due, due_bytes FROM asset_count_changes ${where}) AS counted`;

export async function byConnection(db: Database, connectionIds: string[]) {
  if (connectionIds.length === 0) return [];
  const { rows: found } = await sql<Counted & { connectionId: string }>`
    SELECT connection_id, state, skipped, sum(assets)::bigint AS count, sum(bytes)::bigint AS bytes
    FROM ${rows(sql`WHERE connection_id = ANY(${connectionIds}::text[])`)}
    GROUP BY connection_id, state, skipped HAVING sum(assets) <> 0`.execute(db);
  return found;
}

/** Counts of all assets, with those that belong to no connection. */
export async function totals(db: Database): Promise<Counted[]> {
  const { rows: found } = await sql<Counted>`
    SELECT state, skipped, sum(assets)::bigint AS count, sum(bytes)::bigint AS bytes
    FROM ${rows()} GROUP BY state, skipped HAVING sum(assets) <> 0`.execute(db);
  return found;
}

/**
 * The assets that active connections have still to transfer, according to listings. `later`: of these, postponed after an
 * error; `sidecars`: mirrored assets that wait for a transcript or thumbnail.
 */
export async function outstanding(db: Database) {
  const readable = sql`
    JOIN access USING (connection_id, company_id) JOIN connections c ON c.id = access.connection_id
    WHERE access.lost_at IS NULL AND c.status = 'active'`;
  const { rows: found } = await sql<{ count: number; bytes: number; later: number; sidecars: number }>`
    SELECT coalesce(sum(due) FILTER (WHERE state <> 'mirrored'), 0)::bigint AS count,
      coalesce(sum(due_bytes) FILTER (WHERE state <> 'mirrored'), 0)::bigint AS bytes,
      coalesce(sum(due) FILTER (WHERE state = 'mirrored'), 0)::bigint AS sidecars,
      (SELECT count(*) FROM assets ${readable} AND assets.state = 'pending' AND assets.reason IS NOT NULL
        AND assets.next_at > now() + interval '5 seconds') AS later
    FROM ${rows(sql`WHERE (due <> 0 OR due_bytes <> 0) AND state IN ('pending', 'transferring', 'mirrored')`)} ${readable}`.execute(
    db,
  );
  return found[0]!;
}

export async function fold(db: Database): Promise<void> {
  const { rows: changed } = await sql<{ some: boolean }>`
    SELECT EXISTS (SELECT FROM asset_count_changes) AS some`.execute(db);
  if (changed[0]!.some) await db.transaction().execute(foldChanges);
}

/** One process at a time; the others return at once. */
async function foldChanges(tx: Database): Promise<void> {
  const { rows: lock } = await sql<{ mine: boolean }>`SELECT pg_try_advisory_xact_lock(7416) AS mine`.execute(tx);
  if (!lock[0]!.mine) return;
  await sql`
    WITH changed AS (DELETE FROM asset_count_changes RETURNING *)
    INSERT INTO asset_counts AS kept
    SELECT connection_id, company_id, state, skipped, sum(assets), sum(bytes), sum(due), sum(due_bytes)
    FROM changed GROUP BY connection_id, company_id, state, skipped
    ON CONFLICT (connection_id, company_id, state, skipped) DO UPDATE SET
      assets = kept.assets + excluded.assets, bytes = kept.bytes + excluded.bytes,
      due = kept.due + excluded.due, due_bytes = kept.due_bytes + excluded.due_bytes`.execute(tx);
}
