import { sql } from 'kysely';
import type { Database, Media, UploadPart, UploadUnderWay } from '../database/schema.ts';
import { type AssetLease, inHand } from './leases.ts';

/** The transfer begins: of what was pending, it has. */
export async function startTransfer(db: Database, lease: AssetLease): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('assets')
    .set({ state: 'transferring' })
    .where(inHand(lease))
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/**
 * Another file is about to take the place of what is in the bucket: from here on the row says of neither that it is
 * there, and remembers `superseded`, the keys that one of them has.
 */
export async function replace(db: Database, lease: AssetLease, superseded: string[]): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('assets')
    .set({
      recordKey: null,
      media: sql`media || '{"version": ""}'`,
      ...(superseded.length > 0 && { thumbnail: null, transcriptKeys: null, sidecarFiles: '{}' as never }),
      superseded: sql`ARRAY(SELECT DISTINCT unnest(superseded || ${superseded}::text[]))`,
    })
    .where(inHand(lease))
    .executeTakeFirst();
  return numUpdatedRows > 0n;
}

/** The media is in the bucket and checked; a later failure of this lease need not fetch it again. */
export async function saveMedia(db: Database, lease: AssetLease, media: Media): Promise<boolean> {
  const values = { media: JSON.stringify(media) as never, bytes: media.bytes, verifiedAt: sql<Date>`now()` };
  // Most came in one stream: there are no parts to forget, and none can be added.
  const { numUpdatedRows } = await db
    .updateTable('assets')
    .set(values)
    .where(inHand(lease))
    .where('upload', 'is', null)
    .executeTakeFirst();
  return numUpdatedRows > 0n || setUpload(db, lease, null, values);
}

/** An upload in parts has begun, or what there was of one is gone; the parts of the one before are forgotten. */
export async function saveUpload(db: Database, lease: AssetLease, upload: UploadUnderWay | null): Promise<boolean> {
  return setUpload(db, lease, upload);
}

/** A part is stored and proven. */
export async function savePart(db: Database, lease: AssetLease, part: UploadPart): Promise<boolean> {
  const { numAffectedRows } = await sql`
    INSERT INTO upload_parts (asset_id, number, bytes, etag, crc32)
    SELECT id, ${part.number}, ${part.bytes}, ${part.etag}, ${part.crc32} FROM assets
    WHERE ${inHand(lease)} AND upload IS NOT NULL FOR SHARE
    ON CONFLICT (asset_id, number) DO UPDATE
      SET bytes = excluded.bytes, etag = excluded.etag, crc32 = excluded.crc32, stored_at = now()`.execute(db);
  return (numAffectedRows ?? 0n) > 0n;
}

/** The parts of the upload that is under way, by number. */
export async function parts(db: Database, assetId: string): Promise<UploadPart[]> {
  return db
    .selectFrom('uploadParts')
    .select(['number', 'bytes', 'etag', 'crc32'])
    .where('assetId', '=', assetId)
    .orderBy('number')
    .execute();
}

/** The ids of all uploads that somebody may go on with. */
export async function uploads(db: Database): Promise<string[]> {
  const { rows } = await sql<{
    id: string;
  }>`SELECT upload->>'id' AS id FROM assets WHERE upload IS NOT NULL`.execute(db);
  return rows.map((row) => row.id);
}

async function setUpload(
  db: Database,
  lease: AssetLease,
  upload: UploadUnderWay | null,
  values: Record<string, unknown> = {},
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const { numUpdatedRows } = await tx
      .updateTable('assets')
      .set({ upload: upload === null ? null : (JSON.stringify(upload) as never), ...values })
      .where(inHand(lease))
      .executeTakeFirst();
    if (numUpdatedRows === 0n) return false;
    await tx.deleteFrom('uploadParts').where('assetId', '=', lease.assetId).execute();
    return true;
  });
}
