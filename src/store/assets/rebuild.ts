import { type RawBuilder, sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { recordset } from '../database/recordset.ts';
import type { AssetState, Database, ListedAsset, Media, SidecarStates } from '../database/schema.ts';
import { notLeased } from './leases.ts';

/** An asset as its record in the bucket describes it. */
export interface RebuiltAsset extends Omit<ListedAsset, 'problem'>, Omit<SidecarStates, 'transcriptDeadline'> {
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
}

/** `known`: it was in the database before. `older` or `newer` than another record of the same asset, whose media is at `key`. */
export type Rebuilt = { outcome: 'restored' | 'known' } | { outcome: 'older' | 'newer'; key: string };

/**
 * Adds assets from their records in the bucket, each id once. An asset that is leased, or whose media in the database is not older
 * than the record, stays as it is; one that only a listing had gets the media. Of two records of an asset, the later one counts.
 */
export async function add(db: Database, assets: RebuiltAsset[]): Promise<Map<string, Rebuilt>> {
  if (assets.length === 0) return new Map();
  const companies = [...new Set(assets.map((asset) => asset.companyId))].sort();
  const records = sql`${recordset(assets)} AS r (id text, company_id text, project_id text, asset_type text, name text,
    size bigint, upload_date bigint, listed jsonb, detail jsonb, state text, reason jsonb, due boolean, media jsonb,
    bytes bigint, record_key text, mirrored_at timestamptz, transcript_state text, transcript_keys jsonb,
    thumbnail_state text, thumbnail jsonb, sidecar_files jsonb)`;
  return db.transaction().execute(async (tx) => {
    // The name is unknown until a connection can read the company.
    await sql`
      INSERT INTO companies (id, name) SELECT id, id FROM unnest(${companies}::text[]) AS id
      ON CONFLICT (id) DO NOTHING`.execute(tx);
    const older = await forgetOlder(tx, records);
    const restored = await insertRebuilt(tx, records);
    const { rows: present } = await sql<{ id: string; key: string | null }>`
      SELECT a.id, ${otherKey} AS key
      FROM assets a JOIN ${records} ON r.id = a.id`.execute(tx);
    const outcomes = new Map<string, Rebuilt>();
    for (const { id, key } of present)
      outcomes.set(id, key === null ? { outcome: 'known' } : { outcome: 'older', key });
    for (const { id } of restored) outcomes.set(id, { outcome: 'restored' });
    for (const { id, key } of older) if (key !== null) outcomes.set(id, { outcome: 'newer', key });
    return outcomes;
  });
}

/** The key of the media in the row if only a rebuild has written it, from another record than `r`. A worker would have had a lease. */
const otherKey = sql`CASE WHEN a.lease = 0 AND a.media->>'key' <> r.media->>'key' THEN a.media->>'key' END`;

/**
 * Forgets the file of assets of which the bucket has another, newer one: they were restored from an older record, or with an older
 * backup of the database. They keep their connection. Returns them, with the key of the media if it was from another record.
 */
async function forgetOlder(tx: Database, records: RawBuilder<unknown>) {
  const file = (row: string) =>
    sql.raw(`(${row}.media->>'key', ${row}.media->>'bytes', ${row}.media#>>'{checksums,crc32}')`);
  // The transcript goes, too: that of another file may have the same key. If something was due, the library is asked again.
  const { rows } = await sql<{ id: string; key: string | null }>`
    WITH r AS (SELECT * FROM ${records}), older AS (
      SELECT a.id, ${otherKey} AS key
      FROM assets a JOIN r ON r.id = a.id
      WHERE ${notLeased} AND ${file('a')} IS DISTINCT FROM ${file('r')}
        AND a.mirrored_at < r.mirrored_at
      ORDER BY a.id FOR UPDATE OF a
    ), forgotten_parts AS (
      DELETE FROM upload_parts USING older WHERE asset_id = older.id
    ), forgotten_replacements AS (
      DELETE FROM replacements USING older WHERE asset_id = older.id
    )
    UPDATE assets a SET media = NULL, bytes = NULL, record_key = NULL, sidecar_files = '{}', superseded = '{}', upload = NULL,
      mirrored_at = NULL, keeping_at = NULL, verified_at = NULL, unverifiable_at = NULL, retained_until = NULL,
      transcript_state = 'none', transcript_keys = NULL, transcript_deadline = NULL, thumbnail_state = 'none', thumbnail = NULL,
      connection_id = CASE WHEN a.company_id = r.company_id THEN a.connection_id END, company_id = r.company_id,
      project_id = r.project_id, asset_type = r.asset_type, name = r.name, size = r.size, upload_date = r.upload_date,
      listed = CASE WHEN a.next_at IS NULL THEN r.listed ELSE a.listed END, revision = a.revision + 1, state = 'pending',
      reason = r.reason, attempts = 0, follow_ups = 0, waits = 0, processing_since = NULL, next_at = now()
    FROM older JOIN r USING (id) WHERE a.id = older.id
    RETURNING a.id, older.key`.execute(tx);
  return rows;
}

async function insertRebuilt(tx: Database, records: RawBuilder<unknown>) {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO assets AS a (id, company_id, project_id, asset_type, name, size, upload_date, listed, detail, state,
      reason, next_at, media, bytes, record_key, mirrored_at, transcript_state, transcript_keys, thumbnail_state, thumbnail,
      sidecar_files)
    SELECT r.id, r.company_id, r.project_id, r.asset_type, r.name, r.size, r.upload_date, r.listed, r.detail, r.state,
      r.reason, CASE WHEN r.due THEN now() END, r.media, r.bytes, r.record_key, r.mirrored_at, r.transcript_state,
      r.transcript_keys, r.thumbnail_state, r.thumbnail, r.sidecar_files
    FROM ${records} ORDER BY r.id
    ON CONFLICT (id) DO UPDATE SET
      detail = excluded.detail, media = excluded.media, bytes = excluded.bytes, record_key = excluded.record_key,
      mirrored_at = excluded.mirrored_at, transcript_state = excluded.transcript_state,
      transcript_keys = excluded.transcript_keys, thumbnail_state = excluded.thumbnail_state,
      thumbnail = excluded.thumbnail, sidecar_files = excluded.sidecar_files, lease = CASE a.lease WHEN 0 THEN 0 ELSE a.lease + 1 END,
      (state, reason, next_at) = (
        SELECT CASE WHEN same THEN 'mirrored' ELSE a.state END, CASE WHEN NOT same AND NOT a.skipped THEN a.reason END,
          CASE WHEN same AND a.listed = excluded.listed THEN excluded.next_at WHEN same OR a.skipped THEN now()
            ELSE a.next_at END
        FROM (SELECT excluded.state = 'mirrored' AND a.state IN ('pending', 'processing', 'transferring', 'failed')
          AND a.size IS NOT DISTINCT FROM excluded.size AND a.upload_date IS NOT DISTINCT FROM excluded.upload_date
          AS same) AS it)
    WHERE a.media IS NULL AND (a.lease_until IS NULL OR a.lease_until < now())
    RETURNING a.id`.execute(tx);
  return rows;
}
