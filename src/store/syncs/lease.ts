import { sql } from 'kysely';
import { LeaseLost } from '../../floor/errors.ts';
import { isStranded } from '../assets/leases.ts';
import { jsonb } from '../database/jsonb.ts';
import { wroteAny } from '../database/results.ts';
import type { CompanyPosition, Database, Sync } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import type { LockedAsset } from './write-assets.ts';

/** The lease of a connection's syncs, which `owner` takes and extends for `leaseMs`. */
export interface SyncLease {
  connectionId: string;
  owner: string;
  leaseMs: number;
}

/** Extends the lease. False: another process has taken it over. */
export async function extendLease(db: Database, lease: SyncLease): Promise<boolean> {
  return wroteAny(await extending(lease).execute(db));
}

/**
 * Extends the lease and locks the known assets of a page. Locks the connection first and then the assets by id, so that two
 * pages do not deadlock.
 * @throws LeaseLost
 */
export async function lockPage(
  tx: Database,
  lease: SyncLease,
  ids: string[],
): Promise<{ settings: Record<string, unknown>; known: Map<string, LockedAsset> }> {
  const { rows } = await sql<LockedAsset & { settings: Record<string, unknown> }>`
    WITH extended AS (${extending(lease)} RETURNING settings),
    known AS (
      SELECT a.id, a.company_id, a.connection_id, a.state, a.reason, a.skipped, a.project_id, a.asset_type, a.name, a.size, a.upload_date,
        a.listed, a.media, a.mirrored_at, a.transcript_state, a.thumbnail_state,
        ${isStranded} AS stranded,
        (SELECT coalesce(listed, '{}') FROM replacements WHERE asset_id = a.id AND released_at IS NULL) AS replacement
      FROM assets a CROSS JOIN extended WHERE a.id = ANY(${ids}::text[]) ORDER BY a.id FOR UPDATE OF a
    )
    SELECT extended.settings, known.* FROM extended LEFT JOIN known ON true`.execute(tx);
  if (!rows[0]) throw leaseLost(lease);
  const known = new Map(rows.flatMap((asset) => (asset.id === null ? [] : [[asset.id, asset] as const])));
  return { settings: rows[0].settings, known };
}

/** The position of one company, to be merged into those of its sync. */
export const positionOf = (companyId: string, position: CompanyPosition) =>
  sql`jsonb_build_object(${companyId}::text, ${jsonb(position)})`;

/** A leased sync that has listed a company to its end. */
export interface Listed {
  sync: Sync;
  lease: SyncLease;
  companyId: string;
}

/** Does something in a transaction that extends the lease first. @throws LeaseLost */
export async function underLease<T>(db: Database, listed: Listed, work: (tx: Database) => Promise<T>): Promise<T> {
  return db.transaction().execute(async (tx) => {
    if (!(await extendLease(tx, listed.lease))) throw leaseLost(listed.lease);
    return work(tx);
  });
}

const leaseLost = ({ connectionId }: SyncLease) => new LeaseLost(`the sync of connection ${connectionId}`);

const extending = ({ connectionId, owner, leaseMs }: SyncLease) => sql`
  UPDATE connections SET sync_until = ${inMs(leaseMs)}
  WHERE id = ${connectionId} AND sync_owner = ${owner} AND status = 'active'`;
