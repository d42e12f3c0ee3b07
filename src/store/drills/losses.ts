import { sql } from 'kysely';
import { isBeingRemoved } from '../assets/being-removed.ts';
import type { AssetVersion, Database } from '../database/schema.ts';
import type { DrillFailure, DrillReport } from './drill-report.ts';

/** An asset of the copy, and what the records in the bucket do not have of it. */
export interface Compared {
  id: string;
  key: string;
  /** Null: the restored record is the same. */
  code: DrillFailure | null;
  /** When the change happened that would be lost. */
  since: Date;
  /** The asset was changed during the drill, or a worker holds its lease, so a difference is not counted. */
  inProgress: boolean;
}

interface Scratched {
  schema: string;
  /** When the drill began. */
  startedAt: Date;
}

/**
 * The next assets of the copy by id, or of those with these ids, each compared with the one that was restored into the scratch
 * schema.
 */
export async function compare(
  db: Database,
  { schema, startedAt, ids, after, limit }: Scratched & { ids?: string[]; after: string; limit: number },
): Promise<Compared[]> {
  const { rows } = await sql<Compared>`
    WITH page AS (
      -- Without a time, its objects are being replaced or removed.
      SELECT * FROM assets WHERE id > ${after} AND ${ids ? sql`id = ANY(${ids}::text[])` : sql`true`}
        AND media IS NOT NULL AND state IN ('mirrored', 'gone') AND mirrored_at IS NOT NULL
      ORDER BY id LIMIT ${limit}
    ), compared AS (
      SELECT a.*, CASE
        WHEN s.media IS NULL THEN 'record_missing'
        WHEN (s.media->'key', s.media->'bytes', s.media->'variant', s.media#>'{checksums,crc32}', s.company_id)
            IS DISTINCT FROM (a.media->'key', a.media->'bytes', a.media->'variant', a.media#>'{checksums,crc32}', a.company_id)
          -- The database may have learned the content hash later.
          OR s.media#>'{checksums,sha256}' <> a.media#>'{checksums,sha256}'
          -- The record is written shortly before, and stays when a time in the future is corrected.
          OR s.mirrored_at < a.mirrored_at - interval '1 hour' THEN 'record_differs'
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
      code IS NOT NULL AND (coalesce(lease_until > now(), false) OR greatest(mirrored_at, settled_at) >= ${startedAt}
        OR EXISTS (SELECT FROM asset_changes c WHERE c.asset_id = compared.id AND c.at >= ${startedAt})) AS in_progress
    FROM compared ORDER BY id`.execute(db);
  return rows;
}

/** The next versions that are kept, each with whether the restored one is the same. Without those that are being removed. */
export async function versions(
  db: Database,
  { schema, startedAt, after, limit }: Scratched & { after: AssetVersion | undefined; limit: number },
) {
  const { rows } = await sql<AssetVersion & { isRestored: boolean }>`
    SELECT v.*, EXISTS (
        SELECT FROM ${sql.id(schema, 'asset_versions')} s WHERE (s.asset_id, s.replaced_at) = (v.asset_id, v.replaced_at)
          AND (s.files, s.company_id) = (v.files, v.company_id)) AS is_restored
    FROM asset_versions v
    WHERE ${after ? sql`(v.asset_id, v.replaced_at) > (${after.assetId}, ${after.replacedAt}::timestamptz)` : sql`true`}
      AND v.replaced_at < ${startedAt} AND NOT ${isBeingRemoved}
      AND NOT EXISTS (SELECT FROM assets a WHERE a.id = v.asset_id AND a.lease_until > now())
    ORDER BY v.asset_id, v.replaced_at LIMIT ${limit}`.execute(db);
  return rows;
}

/** How many tombstones of erased assets were not restored, and when the oldest of them was made. */
export async function missingTombstones(db: Database, { schema, startedAt }: Scratched) {
  const { rows } = await sql<{ count: number; oldest: Date | null }>`
    SELECT count(*) AS count, min(erased_at) AS oldest FROM tombstones t WHERE erased_at < ${startedAt}
      AND NOT EXISTS (SELECT FROM erasure_assets e WHERE e.hash = t.hash AND e.asset_id IS NOT NULL)
      AND NOT EXISTS (SELECT FROM ${sql.id(schema, 'tombstones')} s WHERE s.hash = t.hash)`.execute(db);
  return rows[0]!;
}

/** Restored assets that the database does not have, and did not remove during the drill. `total`: how many there are. */
export async function extra(db: Database, { schema, startedAt, limit }: Scratched & { limit: number }) {
  const { rows } = await sql<{ id: string; key: string; since: Date; total: number }>`
    SELECT id, media->>'key' AS key, mirrored_at AS since, count(*) OVER () AS total
    FROM ${sql.id(schema, 'assets')} s
    WHERE NOT EXISTS (SELECT FROM assets a WHERE a.id = s.id) AND NOT EXISTS (
      SELECT FROM asset_changes c WHERE c.asset_id = s.id AND c.kind = 'erased' AND c.at >= ${startedAt})
    ORDER BY id LIMIT ${limit}`.execute(db);
  return rows;
}

/** Deletes restored assets whose media is at these keys. For the scratch schema. */
export async function forget(db: Database, assets: { id: string; key: string }[]): Promise<void> {
  const [ids, keys] = [assets.map(({ id }) => id), assets.map(({ key }) => key)];
  await sql`
    DELETE FROM assets a USING unnest(${ids}::text[], ${keys}::text[]) AS old (id, key)
    WHERE a.id = old.id AND a.media->>'key' = old.key`.execute(db);
}

export async function countTombstones(db: Database): Promise<number> {
  const { rows } = await sql<{ count: number }>`SELECT count(*) AS count FROM tombstones`.execute(db);
  return rows[0]!.count;
}

/** What only the database has. Entries of the audit log are in the bucket from the next day on. */
export async function onlyInDatabase(db: Database) {
  const { rows } = await sql<DrillReport['loss']['onlyInDatabase']>`
    SELECT (SELECT count(*) FROM connections WHERE status <> 'disconnected') AS connections,
      (SELECT count(*) FROM webhook_endpoints WHERE sealed IS NOT NULL) AS webhooks,
      (SELECT count(*) FROM api_tokens) AS tokens, (SELECT count(*) FROM holds) AS holds,
      (SELECT count(*) FROM events WHERE kind LIKE 'operator.%' AND at >= date_trunc('day', now(), 'UTC')) AS audit_entries`.execute(
    db,
  );
  return rows[0]!;
}

/** What is in the copy: assets and the bytes of their media. */
export async function sizes(db: Database) {
  const { rows } = await sql<{ assets: number; bytes: number }>`
    SELECT count(*) AS assets, coalesce(sum(bytes), 0)::bigint AS bytes FROM assets
    WHERE media IS NOT NULL AND state IN ('mirrored', 'gone')`.execute(db);
  return rows[0]!;
}
