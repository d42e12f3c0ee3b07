import { sql } from 'kysely';
import { prepared } from '../database/prepared.ts';
import { recordset } from '../database/recordset.ts';
import type { Database } from '../database/schema.ts';
import { isWanted } from '../events/add-event.ts';
import { historyEntry } from './history.ts';
import type { AssetLease, Mirrored } from './leases.ts';

/**
 * Reports that the file of an asset is stored, or has replaced another file, or that its transcript is stored. The row
 * before the change decides, so that an event is neither lost nor repeated if a worker dies.
 */
const reported = sql`
  INSERT INTO events (kind, connection_id, asset_id, data)
  SELECT e.kind, ended.connection_id, ended.id, e.data FROM ended CROSS JOIN LATERAL (VALUES
    (CASE WHEN ended.is_replacement THEN 'asset.replaced' ELSE 'asset.mirrored' END, ended.is_new,
      jsonb_build_object('key', ended.media->'key', 'bytes', ended.media->'bytes')),
    ('asset.transcript', ended.has_new_transcript, jsonb_build_object('keys', ended.transcript_keys))
  ) AS e (kind, is_true, data)
  WHERE e.is_true AND ${isWanted(sql`e.kind`)}`;

/** The state of a sidecar that the worker found, unless a listing has requested the sidecar since the lease began. */
const unlessRequested = (column: 'transcript_state' | 'thumbnail_state') => {
  const [now, found] = [sql.ref(`assets.${column}`), sql.ref(`found.${column}`)];
  return sql`CASE WHEN assets.revision <> found.revision AND ${now} = 'pending' AND ${found} IN ('none', 'gave_up')
          THEN 'pending' ELSE ${found} END`;
};

/** Ends leases of mirrored assets, with their events. Returns for each whether its worker still had it. */
export async function endMirrored(db: Database, ends: { lease: AssetLease; done: Mirrored }[]): Promise<boolean[]> {
  const found = ends.map(({ lease, done }) => ({
    ...done,
    id: lease.assetId,
    lease: lease.number,
    revision: lease.revision,
    size: lease.size,
    uploadDate: lease.uploadDate,
    began: lease.stepLog.began,
    entry: historyEntry(lease, { outcome: 'mirrored', reason: done.reason ?? null, waitMs: done.waitMs }),
  }));
  // Selects by ids, too, or the planner would read all assets.
  const ids = ends.map(({ lease }) => lease.assetId);
  const { rows } = await prepared(
    db,
    sql<{ id: string; lease: number }>`
    WITH found AS MATERIALIZED (
      SELECT * FROM ${recordset(found)} AS found (
        id text, lease int, revision int, size bigint, upload_date bigint, wait_ms float8, follow_ups int, reason jsonb,
        record_key text, detail jsonb, transcript_state text, transcript_keys jsonb, transcript_deadline timestamptz,
        thumbnail_state text, thumbnail jsonb, sidecar_files jsonb, began timestamptz, entry jsonb)
    ), leased AS MATERIALIZED (
      SELECT a.id, found.lease, a.mirrored_at IS NULL AS is_new, a.superseded <> '{}' AS is_replacement,
        found.transcript_state = 'mirrored' AND a.transcript_state <> 'mirrored' AS has_new_transcript
      FROM assets a JOIN found USING (id, lease)
      WHERE a.id = ANY(${ids}::text[]) AND a.lease_until IS NOT NULL ORDER BY a.id FOR UPDATE OF a
    ), ended AS (
      UPDATE assets SET queued_at = NULL, lease_until = NULL,
        -- Pending: a listing has requested the asset since the lease began.
        state = CASE WHEN assets.state <> 'pending' AND assets.size IS NOT DISTINCT FROM found.size
          AND assets.upload_date IS NOT DISTINCT FROM found.upload_date THEN 'mirrored' ELSE 'pending' END,
        next_at = CASE WHEN assets.revision = found.revision THEN now() + found.wait_ms * interval '1 ms' ELSE now() END,
        attempts = 0, follow_ups = found.follow_ups, waits = 0, reason = found.reason, processing_since = NULL,
        record_key = found.record_key, superseded = '{}', detail = found.detail,
        mirrored_at = coalesce(mirrored_at, now()),
        transcript_state = ${unlessRequested('transcript_state')}, transcript_keys = found.transcript_keys,
        transcript_deadline = CASE WHEN found.transcript_state = ${unlessRequested('transcript_state')} THEN found.transcript_deadline END,
        thumbnail_state = ${unlessRequested('thumbnail_state')}, thumbnail = found.thumbnail, sidecar_files = found.sidecar_files
      FROM leased JOIN found USING (id, lease) WHERE assets.id = leased.id AND assets.id = ANY(${ids}::text[])
      RETURNING assets.id, assets.lease, assets.sync_id, assets.connection_id, assets.media, assets.transcript_keys,
        leased.is_new, leased.is_replacement, leased.has_new_transcript, found.began, found.entry
    ), reported AS (${reported}
    ), logged AS (
      INSERT INTO asset_history (asset_id, at, kind, sync_id, data) SELECT id, began, 'attempt', sync_id, entry FROM ended
    )
    SELECT id, lease FROM ended`,
  );
  const ended = new Set(rows.map(({ id, lease }) => `${lease} ${id}`));
  return ends.map(({ lease }) => ended.has(`${lease.number} ${lease.assetId}`));
}
