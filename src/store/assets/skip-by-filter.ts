import { sql } from 'kysely';
import type { SkippedByFilter } from '../../floor/reason-codes.ts';
import { recordset } from '../database/recordset.ts';
import { rowsWritten } from '../database/results.ts';
import type { Asset, Database } from '../database/schema.ts';
import { notLeased } from './leases.ts';

/** An asset that changed filters may skip, or no longer skip. */
export type SelectableRow = Pick<
  Asset,
  'id' | 'connectionId' | 'companyId' | 'projectId' | 'assetType' | 'reason' | 'skipped'
>;

/**
 * A page of a company's assets that were never mirrored: skipped ones of all connections, and those that this connection
 * has still to mirror or could not. Leased assets are left to their workers.
 */
export async function page(
  db: Database,
  of: {
    connectionId: string;
    companyId: string;
    after: string;
    limit: number;
  },
): Promise<SelectableRow[]> {
  const { rows } = await sql<SelectableRow>`
    SELECT id, connection_id, company_id, project_id, asset_type, reason, skipped FROM assets
    WHERE company_id = ${of.companyId} AND id > ${of.after} AND media IS NULL AND (
      skipped OR (connection_id = ${of.connectionId} AND (next_at IS NOT NULL OR state = 'failed')
        AND listed <> '{}' AND ${notLeased}))
    ORDER BY id LIMIT ${of.limit}`.execute(db);
  return rows;
}

/** Marks assets as skipped; nothing more is due for them. Returns how many. */
export async function skip(db: Database, assets: { id: string; reason: SkippedByFilter }[]): Promise<number> {
  if (assets.length === 0) return 0;
  const { rows } = await sql<{ count: number }>`
    WITH out AS (
      SELECT a.id, r.reason FROM assets a
      JOIN ${recordset(assets)} AS r (id text, reason jsonb) ON r.id = a.id
      WHERE a.media IS NULL AND ${notLeased}
      ORDER BY a.id FOR UPDATE OF a
    ), changed AS (
      UPDATE assets SET state = 'pending', reason = out.reason, next_at = NULL, queued_at = NULL,
        lease = lease + 1, lease_until = NULL, attempts = 0, waits = 0, processing_since = NULL
      FROM out WHERE assets.id = out.id RETURNING assets.id
    ), logged AS (
      INSERT INTO asset_history (asset_id, kind, data)
      SELECT changed.id, 'skipped', jsonb_build_object('reason', out.reason) FROM changed JOIN out ON out.id = changed.id
    )
    SELECT count(*) AS count FROM changed`.execute(db);
  return rows[0]!.count;
}

/** Makes skipped assets due for this connection. Returns how many. */
export async function unskip(db: Database, connectionId: string, ids: string[]): Promise<number> {
  if (ids.length === 0) return 0;
  const result = await sql`
    WITH chosen AS (
      SELECT id FROM assets WHERE id = ANY(${ids}::text[]) AND skipped ORDER BY id FOR UPDATE
    ), changed AS (
      UPDATE assets SET connection_id = ${connectionId}, reason = NULL, next_at = now()
      FROM chosen WHERE assets.id = chosen.id RETURNING assets.id)
    INSERT INTO asset_history (asset_id, kind) SELECT id, 'unskipped' FROM changed`.execute(db);
  return rowsWritten(result);
}

/** Moves assets to another connection, which begins to mirror them: its attempts count, not those of the one before. */
export async function handOver(db: Database, connectionId: string, ids: string[]): Promise<void> {
  if (ids.length === 0) return;
  await sql`
    WITH over AS (
      SELECT id FROM assets WHERE id = ANY(${ids}::text[]) AND media IS NULL AND ${notLeased}
      ORDER BY id FOR UPDATE)
    UPDATE assets SET connection_id = ${connectionId}, queued_at = NULL, lease = lease + 1, lease_until = NULL,
      state = CASE WHEN state IN ('transferring', 'failed') THEN 'pending' ELSE state END,
      reason = CASE WHEN state = 'processing' THEN reason END, attempts = 0, waits = 0,
      next_at = coalesce(next_at, now())
    FROM over WHERE assets.id = over.id`.execute(db);
}
