import { sql } from 'kysely';
import { notLeased } from '../assets/leases.ts';
import { rowsWritten } from '../database/results.ts';
import type { Database } from '../database/schema.ts';

/**
 * Moves up to `limit` assets that have no connection, or one that cannot work on them, to the oldest connection that can.
 * Retries failed ones: perhaps the other connection could no longer read them. Several processes may do so at once. Returns
 * how many it has moved.
 */
export async function adopt(db: Database, limit: number): Promise<number> {
  // Waiting assets of a company come first. The order is that of an index: otherwise the planner reads all assets to find none.
  const ofCompany = sql`company_id = readers.company_id AND ${notLeased}
    ORDER BY connection_id DESC, company_id DESC, state DESC LIMIT ${limit} FOR UPDATE SKIP LOCKED`;
  const result = await sql`
    WITH readers AS (
      SELECT DISTINCT ON (a.company_id) a.company_id, c.id AS reader_id
      FROM connections c JOIN access a ON a.connection_id = c.id
      WHERE c.status = 'active' AND a.lost_at IS NULL
      ORDER BY a.company_id, c.connected_at, c.id
    ), work AS (
      SELECT o.id, reader_id FROM readers
      CROSS JOIN LATERAL (SELECT id FROM assets WHERE connection_id IS NULL AND ${ofCompany}) AS o
      UNION ALL
      SELECT o.id, reader_id FROM readers JOIN access a ON a.company_id = readers.company_id
      JOIN connections c ON c.id = a.connection_id AND (c.status <> 'active' OR a.lost_at IS NOT NULL)
      CROSS JOIN LATERAL (SELECT id FROM assets WHERE connection_id = c.id AND ${ofCompany}) AS o
      LIMIT ${limit})
    UPDATE assets SET connection_id = work.reader_id, queued_at = NULL, ${restartFailed} FROM work WHERE assets.id = work.id
  `.execute(db);
  return rowsWritten(result);
}

/** Retries failed assets of companies that can be read again: that they could not be read may be why they failed. */
export async function retryFailedAssets(tx: Database, id: string, companyIds: string[]): Promise<void> {
  if (companyIds.length === 0) return;
  await sql`
    WITH work AS (
      SELECT id FROM assets
      WHERE connection_id = ${id} AND company_id = ANY(${companyIds}::text[]) AND ${failed}
      ORDER BY id FOR UPDATE)
    UPDATE assets SET ${restartFailed} FROM work WHERE assets.id = work.id`.execute(tx);
}

/** Failed, and not because its listing is unreadable, which would be the same for every connection. */
const failed = sql`(assets.state = 'failed' AND assets.listed <> '{}')`;
const restartFailed = sql`
  state = CASE WHEN ${failed} THEN 'pending' ELSE assets.state END,
  next_at = CASE WHEN ${failed} THEN now() ELSE assets.next_at END,
  attempts = CASE WHEN ${failed} THEN 0 ELSE assets.attempts END,
  reason = CASE WHEN ${failed} THEN NULL ELSE assets.reason END`;

/** Ends the leases and jobs of a connection, or only of these companies: it can no longer read them. */
export async function leaveWork(tx: Database, id: string, companyIds?: string[]): Promise<void> {
  await sql`
    WITH work AS (
      SELECT id FROM assets
      WHERE connection_id = ${id} AND next_at IS NOT NULL AND (queued_at IS NOT NULL OR lease_until IS NOT NULL)
        ${companyIds ? sql`AND company_id = ANY(${companyIds}::text[])` : sql``}
      ORDER BY id FOR UPDATE
    )
    UPDATE assets SET queued_at = NULL, lease = lease + 1, lease_until = NULL,
      state = CASE state WHEN 'transferring' THEN 'pending' ELSE state END
    FROM work WHERE assets.id = work.id
  `.execute(tx);
}
