import { sql } from 'kysely';
import type { Asset, Database } from '../database/schema.ts';

/** What failed or was unavailable is pending again; what waits keeps its state. */
const afresh = sql`
  state = CASE WHEN state IN ('failed', 'unavailable') THEN 'pending' ELSE state END,
  processing_since = CASE WHEN state IN ('failed', 'unavailable') THEN NULL ELSE processing_since END,
  next_at = now(), attempts = 0, waits = 0, reason = NULL`;

export async function get(db: Database, id: string): Promise<Asset | undefined> {
  return db.selectFrom('assets').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Those of these that are known. */
export async function some(db: Database, ids: string[]): Promise<Asset[]> {
  return ids.length === 0 ? [] : db.selectFrom('assets').selectAll().where('id', 'in', ids).execute();
}

/** What was mirrored in the last `ms`, and in how many seconds. */
export async function recent(db: Database, ms: number) {
  const { rows } = await sql<{ count: number; bytes: number; seconds: number }>`
    SELECT count(*) AS count, coalesce(sum(bytes), 0)::bigint AS bytes,
      greatest(1, least(${ms} / 1000.0, extract(epoch FROM now() - min(mirrored_at))))::float8 AS seconds
    FROM assets WHERE mirrored_at > now() - ${ms} * interval '1 ms'`.execute(db);
  return rows[0]!;
}

/** Of these projects or types those that no asset is of. */
export async function ofNone(db: Database, facet: 'projectId' | 'assetType', names: string[]): Promise<string[]> {
  if (names.length === 0) return [];
  const { rows } = await sql<{ name: string }>`
    SELECT DISTINCT name FROM unnest(${names}::text[]) AS named (name)
    WHERE NOT EXISTS (SELECT FROM asset_facets WHERE ${sql.ref(`asset_facets.${facet}`)} = named.name)
    ORDER BY name`.execute(db);
  return rows.map(({ name }) => name);
}

/**
 * Due now, as on the first day: what failed or was unavailable, what waits to be tried again, and transcripts and
 * thumbnails that were given up. False: it is gone, cannot be read from its listing, is in a worker's hands, or whole.
 */
export async function retry(db: Database, id: string): Promise<boolean> {
  const { numAffectedRows } = await sql`
    UPDATE assets SET ${afresh},
      transcript_deadline = CASE transcript_state WHEN 'gave_up' THEN NULL ELSE transcript_deadline END,
      transcript_state = CASE transcript_state WHEN 'gave_up' THEN 'pending' ELSE transcript_state END,
      thumbnail_state = CASE thumbnail_state WHEN 'gave_up' THEN 'pending' ELSE thumbnail_state END
    WHERE id = ${id} AND state <> 'gone' AND listed <> '{}' AND skipped IS NULL AND (lease_until IS NULL OR lease_until < now())
      AND (state <> 'mirrored' OR next_at IS NOT NULL OR transcript_state = 'gave_up' OR thumbnail_state = 'gave_up')
  `.execute(db);
  return (numAffectedRows ?? 0n) > 0n;
}

/** Up to `limit` of what has failed of a connection is due now, as on the first day. Returns how many. */
export async function retryFailed(db: Database, connectionId: string, limit: number): Promise<number> {
  const { numAffectedRows } = await sql`
    WITH work AS (
      SELECT id FROM assets WHERE connection_id = ${connectionId} AND state = 'failed' AND listed <> '{}'
        AND (lease_until IS NULL OR lease_until < now())
      ORDER BY id LIMIT ${limit} FOR UPDATE)
    UPDATE assets SET ${afresh} FROM work WHERE assets.id = work.id`.execute(db);
  return Number(numAffectedRows ?? 0n);
}
