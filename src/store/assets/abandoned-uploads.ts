import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import { type AssetLease, notLeased, stillLeased } from './leases.ts';

/**
 * Saves the key of an upload that is about to begin, so that it can be found if the process dies before it saves the
 * upload's id. False: the worker has lost its lease.
 */
export async function announce(db: Database, lease: AssetLease, key: string): Promise<boolean> {
  const result = await sql`
    INSERT INTO upload_keys (key, asset_id)
    SELECT ${key}, id FROM assets WHERE ${stillLeased(lease)} FOR SHARE
    ON CONFLICT (key) DO UPDATE SET asset_id = excluded.asset_id, begun_at = now()`.execute(db);
  return wroteAny(result);
}

/**
 * Deletes the state of uploads whose assets have nothing due, or that had no new part for `patienceMs`. Leased assets are
 * left alone. Returns how many.
 */
export async function giveUp(db: Database, patienceMs: number): Promise<number> {
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<{ id: string }>`
      WITH given_up AS (
        SELECT id FROM assets a
        WHERE upload IS NOT NULL AND ${notLeased}
          AND (next_at IS NULL OR greatest(
            (SELECT begun_at FROM upload_keys k WHERE k.key = a.upload->>'key'),
            (SELECT max(stored_at) FROM upload_parts p WHERE p.asset_id = a.id)
          ) < ${msAgo(patienceMs)})
        ORDER BY id FOR UPDATE)
      UPDATE assets SET upload = NULL FROM given_up WHERE assets.id = given_up.id
      RETURNING assets.id`.execute(tx);
    const ids = rows.map(({ id }) => id);
    if (ids.length > 0) await tx.deleteFrom('uploadParts').where('assetId', 'in', ids).execute();
    return ids.length;
  });
}

/**
 * Returns the open uploads that are abandoned: they cannot be resumed, and their asset is not leased. With `shared`, others
 * use the bucket, too: only uploads at keys where this mirror began an upload are returned.
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
      AND ${notLeased}
      AND o.id NOT IN (SELECT upload->>'id' FROM assets WHERE upload IS NOT NULL)`.execute(db);
  return new Set(rows.map(({ id }) => id));
}

/** Deletes keys of uploads that began so long ago that all their remains are swept. */
export async function forgetKeys(db: Database, ageMs: number): Promise<void> {
  await sql`
    DELETE FROM upload_keys k WHERE begun_at < ${msAgo(ageMs)}
      AND NOT EXISTS (SELECT FROM assets WHERE id = k.asset_id AND upload->>'key' = k.key)
      AND NOT EXISTS (SELECT FROM assets WHERE id = k.asset_id AND lease_until > now())`.execute(db);
}
