import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import type { AssetLease } from './leases.ts';

/** Uploads in parts as the records know them, and what becomes of those that nobody goes on with. */

/**
 * Something that a store may take in parts is about to begin at this key. If its process dies before the store's own
 * name for it is saved, it is found by the key. False: another worker has the lease.
 */
export async function intend(db: Database, { assetId, number }: AssetLease, key: string): Promise<boolean> {
  const { numAffectedRows } = await sql`
    INSERT INTO upload_keys (key, asset_id)
    SELECT ${key}, id FROM assets
    WHERE id = ${assetId} AND lease = ${number} AND lease_until IS NOT NULL FOR SHARE
    ON CONFLICT (key) DO UPDATE SET asset_id = excluded.asset_id, begun_at = now()`.execute(db);
  return (numAffectedRows ?? 0n) > 0n;
}

/**
 * The records forget uploads whose assets have nothing more to be done for them, and those without a new part for
 * `patienceMs`; what a worker has in hand stays. Returns how many.
 */
export async function giveUp(db: Database, patienceMs: number): Promise<number> {
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<{ id: string }>`
      WITH given_up AS (
        SELECT id FROM assets a
        WHERE upload IS NOT NULL AND (lease_until IS NULL OR lease_until < now())
          AND (next_at IS NULL OR greatest(
            (SELECT begun_at FROM upload_keys k WHERE k.key = a.upload->>'key'),
            (SELECT max(stored_at) FROM upload_parts p WHERE p.asset_id = a.id)
          ) < now() - ${patienceMs} * interval '1 ms')
        ORDER BY id FOR UPDATE)
      UPDATE assets SET upload = NULL FROM given_up WHERE assets.id = given_up.id
      RETURNING assets.id`.execute(tx);
    const ids = rows.map(({ id }) => id);
    if (ids.length > 0) await tx.deleteFrom('uploadParts').where('assetId', 'in', ids).execute();
    return ids.length;
  });
}

/**
 * Which of these a store has for nobody: not those that somebody may go on with, nor whatever a worker is writing at
 * present. With `shared`, where others have uploads too, only those at keys at which one of ours was begun.
 */
export async function strays(
  db: Database,
  open: { id: string; key?: string }[],
  options: { shared: boolean },
): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`
    SELECT o.id FROM unnest(${open.map(({ id }) => id)}::text[], ${open.map(({ key }) => key ?? null)}::text[]) o (id, key)
    LEFT JOIN upload_keys k ON k.key = o.key
    LEFT JOIN assets a ON a.id = k.asset_id
    WHERE (k.key IS NOT NULL OR NOT ${options.shared})
      AND (a.lease_until IS NULL OR a.lease_until < now())
      AND o.id NOT IN (SELECT upload->>'id' FROM assets WHERE upload IS NOT NULL)`.execute(db);
  return new Set(rows.map(({ id }) => id));
}

/** Keys at which nothing was begun for so long that all there may have been of it is swept. */
export async function forgetKeys(db: Database, ageMs: number): Promise<void> {
  await sql`
    DELETE FROM upload_keys k WHERE begun_at < now() - ${ageMs} * interval '1 ms'
      AND NOT EXISTS (SELECT FROM assets WHERE id = k.asset_id AND upload->>'key' = k.key)
      AND NOT EXISTS (SELECT FROM assets WHERE id = k.asset_id AND lease_until > now())`.execute(db);
}
