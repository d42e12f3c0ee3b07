import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { isStranded, type LockedAsset } from './record-page.ts';

/** A run whose lease another process has taken over must not write anything more. */
export class LeaseLost extends Error {
  override readonly name = 'LeaseLost';
}

/** Extends the lease of a connection's sync. 0: another process has it. */
export async function holdLease(db: Database, connectionId: string, owner: string, leaseMs: number): Promise<bigint> {
  return (await extendLease(connectionId, owner, leaseMs).execute(db)).numAffectedRows ?? 0n;
}

/**
 * Extends the lease, and locks those of the assets that are in the records: first the connection, then the assets in the
 * order of their ids, so that two pages never wait for each other in a circle.
 * @throws LeaseLost
 */
export async function lockPage(
  tx: Database,
  connectionId: string,
  owner: string,
  leaseMs: number,
  ids: string[],
): Promise<{ settings: Record<string, unknown>; known: Map<string, LockedAsset> }> {
  const { rows } = await sql<LockedAsset & { id: string | null; settings: Record<string, unknown> }>`
    WITH held AS (${extendLease(connectionId, owner, leaseMs)} RETURNING settings),
    known AS (
      SELECT a.id, a.company_id, a.connection_id, a.state, a.reason, a.skipped, a.project_id, a.asset_type, a.name, a.size, a.upload_date,
        a.listed, a.media, a.mirrored_at, a.transcript_state, a.thumbnail_state,
        ${isStranded} AS stranded
      FROM assets a CROSS JOIN held WHERE a.id = ANY(${ids}::text[]) ORDER BY a.id FOR UPDATE OF a
    )
    SELECT held.settings, known.* FROM held LEFT JOIN known ON true`.execute(tx);
  if (!rows[0]) throw new LeaseLost(`another process has taken over the sync of connection ${connectionId}`);
  const known = new Map(rows.flatMap((asset) => (asset.id === null ? [] : [[asset.id, asset] as const])));
  return { settings: rows[0].settings, known };
}

const extendLease = (connectionId: string, owner: string, leaseMs: number) => sql`
  UPDATE connections SET sync_until = ${inMs(leaseMs)}
  WHERE id = ${connectionId} AND sync_owner = ${owner} AND status = 'active'`;
