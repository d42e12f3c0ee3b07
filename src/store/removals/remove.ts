import { sql } from 'kysely';
import { clockToleranceMs } from '../../floor/clock.ts';
import { notLeased } from '../assets/leases.ts';
import { invalidMedia } from '../assets/stored-file.ts';
import { recordset } from '../database/recordset.ts';
import { wroteAny } from '../database/results.ts';
import type { Asset, Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';
import { protectedByHold } from './holds.ts';
import { hashOf } from './tombstones.ts';

/** A version of an object that a removal could not remove. */
export interface Leftover {
  key: string;
  versionId: string;
  bytes: number;
  /** When its lock ends; null: the store does not report it. */
  lockedUntil: Date | null;
}

/** The objects that a removal found in the bucket, and those that it could not remove. */
export interface Removed {
  objects: number;
  bytes: number;
  left: Leftover[];
}

/** Leases an asset to remove it, and marks it as gone; with `gone`, only if it is still gone. Undefined if it could not be leased. */
export async function takeForRemoval(
  db: Database,
  id: string,
  { gone, leaseMs }: { gone: boolean; leaseMs: number },
): Promise<Asset | undefined> {
  const still = gone ? sql`AND a.state = 'gone'` : sql``;
  const { rows } = await sql<Asset>`
    WITH taken AS (SELECT a.id FROM assets a WHERE a.id = ${id} ${still} FOR UPDATE)
    UPDATE assets SET state = 'gone', next_at = NULL, queued_at = NULL, revision = revision + 1,
      lease = lease + 1, lease_until = ${inMs(leaseMs)}
    FROM taken
    -- A longer lease was taken while the clock was ahead.
    WHERE assets.id = taken.id AND (${notLeased} OR lease_until > ${inMs(leaseMs + clockToleranceMs)})
    RETURNING assets.*`.execute(db);
  return rows[0];
}

/**
 * Marks the copy of a leased asset as incomplete, before its objects are removed. If the asset comes back to the library meanwhile, all
 * its files are fetched again. False: the asset is back already, or a hold protects it and this is no erasure. A hold that is
 * saved later finds the lease (`heldTooLate`).
 */
export async function beginRemoval(
  db: Database,
  { id, lease }: Pick<Asset, 'id' | 'lease'>,
  { erase }: { erase: boolean },
): Promise<boolean> {
  const result = await sql`
    UPDATE assets a SET mirrored_at = NULL, media = ${invalidMedia}, record_key = NULL,
      transcript_state = 'none', transcript_keys = NULL, transcript_deadline = NULL, thumbnail_state = 'none', thumbnail = NULL,
      earlier_keys = ARRAY(
        SELECT unnest(earlier_keys)
        UNION SELECT jsonb_array_elements_text(CASE jsonb_typeof(transcript_keys) WHEN 'array' THEN transcript_keys ELSE '[]' END)
        UNION SELECT thumbnail->>'key' WHERE thumbnail->>'key' IS NOT NULL)
    WHERE id = ${id} AND lease = ${lease} AND state = 'gone' AND (${erase} OR NOT ${protectedByHold})`.execute(db);
  return wroteAny(result);
}

/** Whether another asset has its media in this folder, which ends with `/`. */
export async function isShared(db: Database, folder: string, assetId: string): Promise<boolean> {
  // The keys in a folder lie between its name and the name with the character after `/`.
  const { rows } = await sql`
    SELECT FROM assets WHERE media IS NOT NULL AND (media->>'key') COLLATE "C" >= ${folder}
      AND (media->>'key') COLLATE "C" < ${`${folder.slice(0, -1)}0`} AND id <> ${assetId} LIMIT 1`.execute(db);
  return rows.length > 0;
}

/** Extends the lease of an asset that is being removed. False: another process has it. */
export async function renewRemoval(
  db: Database,
  { id, lease }: Pick<Asset, 'id' | 'lease'>,
  leaseMs: number,
): Promise<boolean> {
  const result = await sql`
    UPDATE assets SET lease_until = ${inMs(leaseMs)} WHERE id = ${id} AND lease = ${lease} AND lease_until IS NOT NULL`.execute(
    db,
  );
  return wroteAny(result);
}

/** Ends the lease of an asset whose removal failed. */
export async function stopRemoval(db: Database, { id, lease }: Pick<Asset, 'id' | 'lease'>): Promise<void> {
  await sql`UPDATE assets SET lease_until = NULL WHERE id = ${id} AND lease = ${lease}`.execute(db);
}

/**
 * Deletes the row of an asset whose objects were removed. False if it was leased again, or is back in the library; in the second
 * case, the rows of its versions are deleted.
 */
export async function finishRemoval(
  db: Database,
  { id, lease, connectionId, companyId }: Asset,
  found: Removed & { accepted: boolean },
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const isDeleted = await deleteAsset(tx, { id, lease });
    if (isDeleted || (await forgetVersions(tx, { id, lease }))) await saveLeftovers(tx, hashOf(id), found.left);
    if (!isDeleted) return false;
    const { objects, bytes, accepted } = found;
    const data = { companyId, objects, bytes, left: found.left.length, ...(accepted && { accepted }) };
    await addEvent(tx, { kind: 'asset.removed', connectionId, assetId: id, data });
    return true;
  });
}

/** Deletes an asset with everything that the database knows of it. */
export async function deleteAsset(tx: Database, { id, lease }: Pick<Asset, 'id' | 'lease'>): Promise<boolean> {
  const result = await sql`DELETE FROM assets WHERE id = ${id} AND lease = ${lease} AND state = 'gone'`.execute(tx);
  if (!wroteAny(result)) return false;
  await forgetAsset(tx, id);
  return true;
}

/** Deletes what other tables know of an asset. */
export async function forgetAsset(tx: Database, id: string): Promise<void> {
  for (const table of ['asset_versions', 'asset_history', 'verification_lines', 'webhook_deliveries']) {
    await sql`DELETE FROM ${sql.table(table)} WHERE asset_id = ${id}`.execute(tx);
  }
  // The row stays, without the asset's id, until a sweep has removed the parts of the unfinished upload.
  await sql`UPDATE upload_keys SET asset_id = '' WHERE asset_id = ${id}`.execute(tx);
}

/** Deletes the rows of the asset's versions, which are no longer in the bucket. False: it was leased again. */
async function forgetVersions(tx: Database, { id, lease }: Pick<Asset, 'id' | 'lease'>): Promise<boolean> {
  const { rows } = await sql`SELECT FROM assets WHERE id = ${id} AND lease = ${lease} FOR UPDATE`.execute(tx);
  if (rows.length > 0) await sql`DELETE FROM asset_versions WHERE asset_id = ${id}`.execute(tx);
  return rows.length > 0;
}

export async function saveLeftovers(tx: Database, hash: string, left: Leftover[]): Promise<void> {
  if (left.length === 0) return;
  await sql`
    INSERT INTO leftovers (hash, key, version_id, bytes, locked_until, retry_at)
    SELECT ${hash}, key, version_id, bytes, locked_until, coalesce(locked_until, now() + interval '1 day')
    FROM ${recordset(left)} AS l (key text, version_id text, bytes bigint, locked_until timestamptz)
    ON CONFLICT (key, version_id) DO UPDATE SET locked_until = excluded.locked_until, retry_at = excluded.retry_at`.execute(
    tx,
  );
}

/** Takes the leftovers that are due, and sets their next attempt to a day later. `erased`: nothing else is ever stored at the key. */
export async function dueLeftovers(db: Database, limit: number) {
  const { rows } = await sql<{ hash: string; key: string; versionId: string; erased: boolean }>`
    UPDATE leftovers SET retry_at = now() + interval '1 day' WHERE (key, version_id) IN (
      SELECT key, version_id FROM leftovers WHERE retry_at <= now() ORDER BY retry_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    RETURNING hash, key, version_id, EXISTS (SELECT FROM tombstones WHERE hash = leftovers.hash) AS erased`.execute(db);
  return rows;
}

export async function leftoverRemoved(db: Database, at: { key: string; versionId: string }): Promise<void> {
  await sql`DELETE FROM leftovers WHERE key = ${at.key} AND version_id = ${at.versionId}`.execute(db);
}
