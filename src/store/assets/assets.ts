import { sql } from 'kysely';
import { rowsWritten, wroteAny } from '../database/results.ts';
import type { Asset, Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import { notLeased } from './leases.ts';

/** Due now. Failed and unavailable assets are pending again; waiting ones keep their state. */
const restarted = sql`
  state = CASE WHEN state IN ('failed', 'unavailable') THEN 'pending' ELSE state END,
  processing_since = CASE WHEN state IN ('failed', 'unavailable') THEN NULL ELSE processing_since END,
  next_at = now(), attempts = 0, follow_ups = 0, waits = 0, reason = NULL`;

export async function get(db: Database, id: string): Promise<Asset | undefined> {
  return db.selectFrom('assets').selectAll().where('id', '=', id).executeTakeFirst();
}

/** The assets with these ids that exist. */
export async function withIds(db: Database, ids: string[]): Promise<Asset[]> {
  return ids.length === 0 ? [] : db.selectFrom('assets').selectAll().where('id', 'in', ids).execute();
}

/** The assets and bytes mirrored in the last `ms`, and the seconds since the first of them. */
export async function recent(db: Database, ms: number) {
  const { rows } = await sql<{ count: number; bytes: number; seconds: number }>`
    SELECT count(*) AS count, coalesce(sum(bytes), 0)::bigint AS bytes,
      greatest(1, least(${ms} / 1000.0, extract(epoch FROM now() - min(mirrored_at))))::float8 AS seconds
    FROM assets WHERE mirrored_at > ${msAgo(ms)}`.execute(db);
  return rows[0]!;
}

/** Returns the projects or types of `names` that no asset has. */
export async function namesOfNoAsset(
  db: Database,
  facet: 'projectId' | 'assetType',
  names: string[],
): Promise<string[]> {
  if (names.length === 0) return [];
  const { rows } = await sql<{ name: string }>`
    SELECT DISTINCT name FROM unnest(${names}::text[]) AS named (name)
    WHERE NOT EXISTS (SELECT FROM asset_facets WHERE ${sql.ref(`asset_facets.${facet}`)} = named.name)
    ORDER BY name`.execute(db);
  return rows.map(({ name }) => name);
}

/**
 * Makes a failed, unavailable or waiting asset due now, and counts its attempts from 0 again. A transcript or thumbnail that
 * was given up is due, too. False: it is gone, skipped, complete or leased, or its listing is unreadable.
 */
export async function retry(db: Database, id: string): Promise<boolean> {
  const result = await sql`
    UPDATE assets SET ${restarted},
      transcript_deadline = CASE transcript_state WHEN 'gave_up' THEN NULL ELSE transcript_deadline END,
      transcript_state = CASE transcript_state WHEN 'gave_up' THEN 'pending' ELSE transcript_state END,
      thumbnail_state = CASE thumbnail_state WHEN 'gave_up' THEN 'pending' ELSE thumbnail_state END
    WHERE id = ${id} AND state <> 'gone' AND listed <> '{}' AND NOT skipped AND ${notLeased}
      AND (state <> 'mirrored' OR next_at IS NOT NULL OR transcript_state = 'gave_up' OR thumbnail_state = 'gave_up')
  `.execute(db);
  return wroteAny(result);
}

/** Makes up to `limit` failed assets of a connection due now, and counts their attempts from 0 again. Returns how many. */
export async function retryFailed(db: Database, connectionId: string, limit: number): Promise<number> {
  const result = await sql`
    WITH work AS (
      SELECT id FROM assets WHERE connection_id = ${connectionId} AND state = 'failed' AND listed <> '{}'
        AND ${notLeased}
      ORDER BY id LIMIT ${limit} FOR UPDATE)
    UPDATE assets SET ${restarted} FROM work WHERE assets.id = work.id`.execute(db);
  return rowsWritten(result);
}
