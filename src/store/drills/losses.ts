import { sql } from 'kysely';
import type { DrillFailure } from '../../drill-report.ts';
import type { Database } from '../database/schema.ts';

/** An asset of the copy, and what the records in the bucket do not have of it. */
export interface Compared {
  id: string;
  key: string;
  /** Null: the restored record is the same. */
  code: DrillFailure | null;
  /** When the change happened that would be lost. */
  since: Date;
  /** It was changed during the drill, or is being changed, so a difference is not counted. */
  inProgress: boolean;
}

interface Scratched {
  schema: string;
  /** When the drill began. */
  startedAt: Date;
}

/** The next assets of the copy by id, each compared with the one that was restored into the scratch schema. */
export async function compare(
  db: Database,
  { schema, startedAt, after, limit }: Scratched & { after: string; limit: number },
): Promise<Compared[]> {
  const { rows } = await sql<Compared>`
    WITH page AS (
      SELECT * FROM assets WHERE id > ${after} AND media IS NOT NULL AND state IN ('mirrored', 'gone')
      ORDER BY id LIMIT ${limit}
    ), compared AS (
      SELECT a.*, CASE
        WHEN s.media IS NULL THEN 'record_missing'
        WHEN s.media->>'key' <> a.media->>'key' OR s.media->'bytes' <> a.media->'bytes'
          OR s.media#>'{checksums,crc32}' <> a.media#>'{checksums,crc32}' THEN 'record_differs'
        WHEN s.reason->>'code' = 'missing_object' THEN 'media_missing'
        WHEN s.state <> 'mirrored' THEN 'media_differs'
        WHEN a.transcript_state = 'mirrored'
          AND (s.transcript_state, s.transcript_keys) IS DISTINCT FROM (a.transcript_state, a.transcript_keys)
          OR a.thumbnail_state = 'mirrored'
          AND (s.thumbnail_state, s.thumbnail) IS DISTINCT FROM (a.thumbnail_state, a.thumbnail) THEN 'sidecar_missing'
        -- The field "download" has a new link and expiry in each answer.
        WHEN (s.detail - 'download') IS DISTINCT FROM (a.detail - 'download') THEN 'metadata_differs'
      END AS code
      FROM page a LEFT JOIN ${sql.id(schema, 'assets')} s ON s.id = a.id
    )
    SELECT id, media->>'key' AS key, code,
      coalesce(CASE WHEN code IN ('metadata_differs', 'sidecar_missing')
        THEN (SELECT max(at) FROM asset_changes c WHERE c.asset_id = compared.id) END, mirrored_at, first_seen_at) AS since,
      code IS NOT NULL AND (queued_at IS NOT NULL OR coalesce(lease_until > now(), false)
        OR state = 'mirrored' AND next_at <= now()
        OR greatest(mirrored_at, settled_at) >= ${startedAt}
        OR EXISTS (SELECT FROM asset_changes c WHERE c.asset_id = compared.id AND c.at >= ${startedAt})) AS in_progress
    FROM compared ORDER BY id`.execute(db);
  return rows;
}

/** How many superseded files and tombstones of the database were not restored, and when the oldest of them was made. */
export async function missing(
  db: Database,
  { schema, startedAt }: Scratched,
): Promise<{ versions: number; tombstones: number; oldest: Date | null }> {
  const { rows } = await sql<{ versions: number; tombstones: number; oldest: Date | null }>`
    WITH versions AS (
      SELECT replaced_at AS at FROM asset_versions v WHERE replaced_at < ${startedAt} AND NOT EXISTS (
        SELECT FROM ${sql.id(schema, 'asset_versions')} s WHERE (s.asset_id, s.replaced_at) = (v.asset_id, v.replaced_at))
    ), tombs AS (
      SELECT erased_at AS at FROM tombstones t WHERE erased_at < ${startedAt} AND NOT EXISTS (
        SELECT FROM ${sql.id(schema, 'tombstones')} s WHERE s.hash = t.hash)
    )
    SELECT (SELECT count(*) FROM versions) AS versions, (SELECT count(*) FROM tombs) AS tombstones,
      (SELECT min(at) FROM (SELECT at FROM versions UNION ALL SELECT at FROM tombs) AS lost) AS oldest`.execute(db);
  return rows[0]!;
}

export async function countTombstones(db: Database): Promise<number> {
  const { rows } = await sql<{ count: number }>`SELECT count(*) AS count FROM tombstones`.execute(db);
  return rows[0]!.count;
}

/** What only the database has. Entries of the audit log are in the bucket from the next day on. */
export async function onlyInDatabase(db: Database) {
  const { rows } = await sql<{
    connections: number;
    webhooks: number;
    tokens: number;
    holds: number;
    auditEntries: number;
  }>`
    SELECT (SELECT count(*) FROM connections WHERE status <> 'disconnected') AS connections,
      (SELECT count(*) FROM webhook_endpoints WHERE sealed IS NOT NULL) AS webhooks,
      (SELECT count(*) FROM api_tokens) AS tokens, (SELECT count(*) FROM holds) AS holds,
      (SELECT count(*) FROM events WHERE kind LIKE 'operator.%' AND at >= date_trunc('day', now(), 'UTC')) AS audit_entries`.execute(
    db,
  );
  return rows[0]!;
}

/** What is in the copy: assets and the bytes of their media. */
export async function sizes(db: Database): Promise<{ assets: number; bytes: number }> {
  const { rows } = await sql<{ assets: number; bytes: number }>`
    SELECT count(*) AS assets, coalesce(sum(bytes), 0)::bigint AS bytes FROM assets
    WHERE media IS NOT NULL AND state IN ('mirrored', 'gone')`.execute(db);
  return rows[0]!;
}
