import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { adoptable } from './readable-companies.ts';

/** Moves adoptable assets to this connection. Retries failed ones: perhaps the other connection could no longer read them. */
export async function adoptWork(tx: Database, id: string): Promise<void> {
  await sql`
    WITH work AS (SELECT assets.id ${adoptable(id)} ORDER BY assets.id FOR UPDATE OF assets)
    UPDATE assets SET connection_id = ${id}, queued_at = NULL, ${restartFailed} FROM work WHERE assets.id = work.id
  `.execute(tx);
}

/** Retries failed assets of companies that can be read again: that they could not be read may be why they failed. */
export async function tryAgain(tx: Database, id: string, companyIds: string[]): Promise<void> {
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

/**
 * Moves assets that a connection can no longer read to one that can, and ends their leases and jobs. Assets that no
 * connection can read wait. Rows that would not change are not written: there may be a million.
 */
export async function leaveWork(tx: Database, id: string, companyIds?: string[]): Promise<void> {
  await sql`
    WITH readers AS (
      SELECT DISTINCT ON (a.company_id) a.company_id, c.id AS other_id
      FROM connections c JOIN access a ON a.connection_id = c.id
      WHERE c.id <> ${id} AND c.status = 'active' AND a.lost_at IS NULL
        AND a.company_id IN (SELECT company_id FROM access WHERE connection_id = ${id})
      ORDER BY a.company_id, c.connected_at, c.id
    ), work AS (
      SELECT assets.id, readers.other_id FROM assets LEFT JOIN readers ON readers.company_id = assets.company_id
      WHERE assets.connection_id = ${id} AND assets.next_at IS NOT NULL
        ${companyIds ? sql`AND assets.company_id = ANY(${companyIds}::text[])` : sql``}
        AND (readers.other_id IS NOT NULL OR assets.queued_at IS NOT NULL OR assets.lease_until IS NOT NULL)
      ORDER BY assets.id FOR UPDATE OF assets
    )
    UPDATE assets SET
      connection_id = coalesce(work.other_id, connection_id),
      queued_at = NULL,
      lease = lease + 1,
      lease_until = NULL,
      state = CASE state WHEN 'transferring' THEN 'pending' ELSE state END
    FROM work WHERE assets.id = work.id
  `.execute(tx);
}
