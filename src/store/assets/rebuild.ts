import { type RawBuilder, sql } from 'kysely';
import type { Reason } from '../../reasons.ts';
import { recordset } from '../database/recordset.ts';
import { rowsWritten } from '../database/results.ts';
import type { AssetState, Database, ListedAsset, Media, ThumbnailState, TranscriptState } from '../database/schema.ts';

/** An asset as its record in the bucket describes it. */
export interface RebuiltAsset extends Omit<ListedAsset, 'problem'> {
  companyId: string;
  detail: Record<string, unknown>;
  state: Extract<AssetState, 'mirrored' | 'pending'>;
  reason: Reason | null;
  /** Something is due for it. */
  due: boolean;
  media: Media;
  /** Size of the media; null: it is not in the bucket. */
  bytes: number | null;
  recordKey: string | null;
  /** ISO 8601. */
  mirroredAt: string;
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  thumbnailState: ThumbnailState;
  thumbnail: { key: string; bytes: number } | null;
}

/** `known`: it was in the database before. `older` or `newer` than another record of the same asset, whose media is at `key`. */
export type Rebuilt = { outcome: 'restored' | 'known' } | { outcome: 'older' | 'newer'; key: string };

/**
 * Adds assets from their records in the bucket, each id once. An asset that has media in the database, or is leased, stays as
 * it is; one that only a listing had gets the media. Of two records of an asset, the one written later counts.
 */
export async function add(db: Database, assets: RebuiltAsset[]): Promise<Map<string, Rebuilt>> {
  if (assets.length === 0) return new Map();
  const companies = [...new Set(assets.map((asset) => asset.companyId))].sort();
  const records = sql`${recordset(assets)} AS r (id text, company_id text, project_id text, asset_type text, name text,
    size bigint, upload_date bigint, listed jsonb, detail jsonb, state text, reason jsonb, due boolean, media jsonb,
    bytes bigint, record_key text, mirrored_at timestamptz, transcript_state text, transcript_keys jsonb,
    thumbnail_state text, thumbnail jsonb)`;
  return db.transaction().execute(async (tx) => {
    // The name is unknown until a connection can read the company.
    await sql`
      INSERT INTO companies (id, name) SELECT id, id FROM unnest(${companies}::text[]) AS id
      ON CONFLICT (id) DO NOTHING`.execute(tx);
    const older = await deleteOlder(tx, records);
    const restored = await insertRebuilt(tx, records);
    const { rows: present } = await sql<{ id: string; key: string | null }>`
      SELECT a.id, CASE WHEN a.lease = 0 AND a.media->>'key' <> r.media->>'key' THEN a.media->>'key' END AS key
      FROM assets a JOIN ${records} ON r.id = a.id`.execute(tx);
    const outcomes = new Map<string, Rebuilt>();
    for (const { id, key } of present)
      outcomes.set(id, key === null ? { outcome: 'known' } : { outcome: 'older', key });
    for (const { id } of restored) outcomes.set(id, { outcome: 'restored' });
    for (const { id, key } of older) outcomes.set(id, { outcome: 'newer', key });
    return outcomes;
  });
}

/** Deletes assets that were restored from an older record. Returns the keys of their media. */
async function deleteOlder(tx: Database, records: RawBuilder<unknown>): Promise<{ id: string; key: string }[]> {
  const { rows } = await sql<{ id: string; key: string }>`
    WITH r AS (SELECT * FROM ${records}), older AS (
      SELECT a.id FROM assets a JOIN r ON r.id = a.id
      WHERE a.lease = 0 AND a.queued_at IS NULL AND a.media->>'key' <> r.media->>'key' AND a.mirrored_at < r.mirrored_at
      ORDER BY a.id FOR UPDATE OF a)
    DELETE FROM assets USING older WHERE assets.id = older.id
    RETURNING assets.id, assets.media->>'key' AS key`.execute(tx);
  return rows;
}

async function insertRebuilt(tx: Database, records: RawBuilder<unknown>): Promise<{ id: string }[]> {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO assets AS a (id, company_id, project_id, asset_type, name, size, upload_date, listed, detail, state,
      reason, next_at, media, bytes, record_key, mirrored_at, transcript_state, transcript_keys, thumbnail_state, thumbnail)
    SELECT r.id, r.company_id, r.project_id, r.asset_type, r.name, r.size, r.upload_date, r.listed, r.detail, r.state,
      r.reason, CASE WHEN r.due THEN now() END, r.media, r.bytes, r.record_key, r.mirrored_at, r.transcript_state,
      r.transcript_keys, r.thumbnail_state, r.thumbnail
    FROM ${records} ORDER BY r.id
    ON CONFLICT (id) DO UPDATE SET
      detail = excluded.detail, media = excluded.media, bytes = excluded.bytes, record_key = excluded.record_key,
      mirrored_at = excluded.mirrored_at, transcript_state = excluded.transcript_state,
      transcript_keys = excluded.transcript_keys, thumbnail_state = excluded.thumbnail_state,
      thumbnail = excluded.thumbnail, lease = a.lease + 1, skipped = NULL,
      (state, reason, next_at) = (
        SELECT CASE WHEN same THEN 'mirrored' ELSE a.state END, CASE WHEN same THEN NULL ELSE a.reason END,
          CASE WHEN same AND a.listed = excluded.listed THEN excluded.next_at WHEN same OR a.skipped IS NOT NULL THEN now()
            ELSE a.next_at END
        FROM (SELECT excluded.state = 'mirrored' AND a.state IN ('pending', 'processing', 'transferring', 'failed')
          AND a.size IS NOT DISTINCT FROM excluded.size AND a.upload_date IS NOT DISTINCT FROM excluded.upload_date
          AS same) AS it)
    WHERE a.media IS NULL AND (a.lease_until IS NULL OR a.lease_until < now())
    RETURNING a.id`.execute(tx);
  return rows;
}

/** Assigns up to `limit` assets without a connection to connections that can read them. Several processes may do so at once. */
export async function adopt(db: Database, limit: number): Promise<number> {
  const result = await sql`
    WITH readers AS (
      SELECT DISTINCT ON (a.company_id) a.company_id, c.id AS other_id
      FROM connections c JOIN access a ON a.connection_id = c.id
      WHERE c.status = 'active' AND a.lost_at IS NULL
      ORDER BY a.company_id, c.connected_at, c.id
    ), orphans AS (
      SELECT o.id, readers.other_id FROM readers CROSS JOIN LATERAL (
        SELECT id FROM assets WHERE connection_id IS NULL AND company_id = readers.company_id
        LIMIT ${limit} FOR UPDATE SKIP LOCKED) AS o
      LIMIT ${limit})
    UPDATE assets SET connection_id = orphans.other_id FROM orphans WHERE assets.id = orphans.id`.execute(db);
  return rowsWritten(result);
}
