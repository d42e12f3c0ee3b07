import { sql } from 'kysely';
import { jsonb } from '../database/jsonb.ts';
import { prepared } from '../database/prepared.ts';
import { recordset } from '../database/recordset.ts';
import { wroteAny } from '../database/results.ts';
import type { AssetVersion, Database, Media, UploadPart, UploadUnderWay } from '../database/schema.ts';
import { type AssetLease, stillLeased } from './leases.ts';
import { invalidMedia } from './stored-file.ts';
import { add } from './versions.ts';

/** Marks an asset as being transferred. Like all writes of a worker: false if it has lost the lease. */
export async function startTransfer(db: Database, lease: AssetLease): Promise<boolean> {
  return wroteAny(await sql`UPDATE assets SET state = 'transferring' WHERE ${stillLeased(lease)}`.execute(db));
}

/**
 * Another file is about to replace the one in the bucket. Until its transfer is done, the asset has no valid copy there.
 * `superseded`: keys of the replaced files, which are deleted once the new record is written. `version`: the replaced file, if it
 * was kept.
 */
export async function beginReplacement(
  db: Database,
  lease: AssetLease,
  { superseded, version }: { superseded: string[]; version: AssetVersion | undefined },
): Promise<boolean> {
  const resetOfOldFile =
    superseded.length > 0
      ? sql`, thumbnail = NULL, transcript_keys = NULL, sidecar_files = '{}', mirrored_at = NULL, keeping_at = NULL`
      : sql``;
  return db.transaction().execute(async (tx) => {
    const result = await sql`
      UPDATE assets SET record_key = NULL, media = ${invalidMedia},
        superseded = ARRAY(SELECT DISTINCT unnest(superseded || ${superseded}::text[]))${resetOfOldFile}
      WHERE ${stillLeased(lease)}`.execute(tx);
    if (version && wroteAny(result)) await add(tx, [version]);
    return wroteAny(result);
  });
}

/**
 * Saves media that was stored and checked: it is not fetched again if a later step of its lease fails. If its bytes have
 * changed, `mirrored_at` is cleared, and set again when the asset is finished. `isVerified`: its content was compared with the
 * checksums now. Returns for each whether its worker still held the lease.
 */
export async function saveMedia(
  db: Database,
  saves: { lease: AssetLease; media: Media; isVerified: boolean }[],
): Promise<boolean[]> {
  const files = saves.map(({ lease, media, isVerified }) => ({
    id: lease.assetId,
    lease: lease.number,
    media,
    isVerified,
  }));
  // Selects by ids, too, or the planner would read all assets.
  const ids = files.map(({ id }) => id);
  const { rows } = await prepared(
    db,
    sql<{ id: string; lease: number }>`
    WITH files AS MATERIALIZED (
      SELECT * FROM ${recordset(files)} AS files (id text, lease int, media jsonb, is_verified bool)
    ), leased AS MATERIALIZED (
      SELECT a.id, files.media, files.is_verified FROM assets a JOIN files USING (id, lease)
      WHERE a.id = ANY(${ids}::text[]) AND a.lease_until IS NOT NULL ORDER BY a.id FOR UPDATE OF a
    ), uploaded AS (
      DELETE FROM upload_parts USING leased WHERE asset_id = leased.id
    )
    UPDATE assets SET media = leased.media, bytes = (leased.media->>'bytes')::bigint, upload = NULL, retained_until = NULL,
      verified_at = CASE WHEN is_verified THEN now() ELSE verified_at END,
      unverifiable_at = CASE WHEN NOT is_verified THEN unverifiable_at END,
      mirrored_at = CASE WHEN assets.media#>>'{checksums,crc32}' = leased.media#>>'{checksums,crc32}' THEN mirrored_at END
    FROM leased WHERE assets.id = leased.id AND assets.id = ANY(${ids}::text[]) RETURNING assets.id, assets.lease`,
  );
  const saved = new Set(rows.map(({ id, lease }) => `${lease} ${id}`));
  return saves.map(({ lease }) => saved.has(`${lease.number} ${lease.assetId}`));
}

/** Saves an upload that has begun, or deletes one that is gone (null). The parts of the one before are deleted. */
export async function saveUpload(db: Database, lease: AssetLease, upload: UploadUnderWay | null): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const result = await sql`
      UPDATE assets SET upload = ${jsonb(upload)} WHERE ${stillLeased(lease)}`.execute(tx);
    if (!wroteAny(result)) return false;
    await tx.deleteFrom('uploadParts').where('assetId', '=', lease.assetId).execute();
    return true;
  });
}

/** Saves a part that was stored and checked. */
export async function savePart(db: Database, lease: AssetLease, part: UploadPart): Promise<boolean> {
  const result = await sql`
    INSERT INTO upload_parts (asset_id, number, bytes, etag, crc32, blocks)
    SELECT id, ${part.number}, ${part.bytes}, ${part.etag}, ${part.crc32}, ${part.blocks}::text[] FROM assets
    WHERE ${stillLeased(lease)} AND upload IS NOT NULL FOR SHARE
    ON CONFLICT (asset_id, number) DO UPDATE
      SET bytes = excluded.bytes, etag = excluded.etag, crc32 = excluded.crc32, blocks = excluded.blocks,
        stored_at = now()`.execute(db);
  return wroteAny(result);
}

/** The parts of an asset's upload, by number. */
export async function parts(db: Database, assetId: string): Promise<UploadPart[]> {
  const { rows } = await sql<UploadPart>`
    SELECT number, bytes, etag, crc32, blocks FROM upload_parts WHERE asset_id = ${assetId} ORDER BY number`.execute(
    db,
  );
  return rows;
}
