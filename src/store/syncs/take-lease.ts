import { sql } from 'kysely';
import { type CompanyAccess, companyAccessOf } from '../companies/readable-companies.ts';
import type { Database, StoredTokens, Sync } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import type { SyncLease } from './lease.ts';

/** A leased sync, with what it needs of its connection. */
export type TakenSync = Sync & {
  userId: string;
  settings: Record<string, unknown>;
  /** The state of the connection when the sync was taken. */
  companyAccess: CompanyAccess;
  storedTokens: StoredTokens;
};

/** What `takeNext` reads. Without a sync to take, its columns are null. */
type Taken = Omit<TakenSync, 'id' | 'storedTokens'> &
  Pick<StoredTokens, 'tokens' | 'tokenVersion' | 'isFresh'> & { id: string | null; busy: boolean };

/**
 * Leases the interrupted or oldest waiting sync of a connection to the owner. `busy` while another owner holds the lease.
 * Undefined, and the lease is released, if none waits or the connection may not work now. One statement, because most syncs find
 * nothing, and this is a good part of their work (`bench/nothing-new.ts`).
 */
export async function takeNext(
  db: Database,
  { connectionId, owner, leaseMs }: SyncLease,
): Promise<TakenSync | 'busy' | undefined> {
  // `next` locks the sync, and so checks its present status: another owner may have ended it while this waited for the connection.
  const { rows } = await sql<Taken>`
    WITH connection AS (
      SELECT user_id, settings, tokens, token_version, coalesce(access_expires_at > now(), false) AS is_fresh,
        coalesce(sync_until > now() AND sync_owner <> ${owner}, false) AS busy,
        status = 'active' AND (delayed_until IS NULL OR delayed_until <= now()) AS may_work, ${companyAccessOf(connectionId)}
      FROM connections WHERE id = ${connectionId} FOR UPDATE
    ), next AS (
      SELECT syncs.id FROM connection JOIN syncs ON connection_id = ${connectionId}
      WHERE may_work AND NOT busy AND syncs.status IN ('waiting', 'running')
      ORDER BY syncs.status = 'waiting', requested_at LIMIT 1 FOR UPDATE OF syncs
    ), taken AS (
      UPDATE syncs SET status = 'running', started_at = coalesce(started_at, now()) FROM next
      WHERE syncs.id = next.id RETURNING syncs.*
    ), leased AS (
      UPDATE connections SET sync_owner = CASE WHEN taken.id IS NOT NULL THEN ${owner} END,
        sync_until = CASE WHEN taken.id IS NOT NULL THEN ${inMs(leaseMs)} END
      FROM connection LEFT JOIN taken ON true WHERE connections.id = ${connectionId} AND NOT busy
    )
    SELECT taken.*, user_id, settings, tokens, token_version, is_fresh, busy,
      jsonb_build_object('status', connection.status, 'readable', readable) AS company_access
    FROM connection LEFT JOIN taken ON true`.execute(db);
  const row = rows[0];
  if (row?.busy) return 'busy';
  if (!row || row.id === null) return undefined;
  const { id, tokens, tokenVersion, isFresh, busy: _, ...sync } = row;
  const { userId } = sync;
  return { ...sync, id, storedTokens: { userId, status: 'active', tokens, tokenVersion, isFresh, delayMs: 0 } };
}

/** Releases the lease; another process may continue. */
export async function release(db: Database, { connectionId, owner }: SyncLease): Promise<void> {
  await sql`
    UPDATE connections SET sync_owner = NULL, sync_until = NULL
    WHERE id = ${connectionId} AND sync_owner = ${owner}`.execute(db);
}
