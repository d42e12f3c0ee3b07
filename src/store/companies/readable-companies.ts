import { sql } from 'kysely';
import { notLeased } from '../assets/leases.ts';
import type { ConnectionStatus, Database } from '../database/schema.ts';

/** `highWaterMark` is in epoch milliseconds, as in `access`. */
export interface ReadableCompany {
  id: string;
  name: string;
  highWaterMark: number | null;
}

/**
 * What a connection can read. `shared`: another connection that is not active, or has lost one of these companies, may have
 * left adoptable assets. `adoptableBy` checks that, in a statement of its own because it is slow to plan.
 */
export interface Standing {
  status: ConnectionStatus;
  readable: ReadableCompany[];
  shared: boolean;
}

/** The status of a connection, and the holder of its sync lease. */
export async function standing(db: Database, id: string) {
  const { rows } = await sql<Standing & { syncOwner: string | null }>`
    SELECT sync_owner, ${standingOf(id)} FROM connections WHERE id = ${id}`.execute(db);
  return rows[0];
}

/** The columns of a `Standing`, for a row of `connections`. */
export const standingOf = (id: string) => sql`
  status, status = 'active' AND EXISTS (SELECT ${idleReaders(id)}) AS shared, coalesce((
    SELECT jsonb_agg(jsonb_build_object('id', companies.id, 'name', name, 'highWaterMark', high_water_mark) ORDER BY companies.id)
    FROM access JOIN companies ON companies.id = company_id
    WHERE connection_id = ${id} AND lost_at IS NULL), '[]') AS readable`;

/** Whether there are assets that this connection can adopt. */
export async function adoptableBy(db: Database, id: string): Promise<boolean> {
  const { rows } = await sql<{ some: boolean }>`SELECT EXISTS (SELECT ${adoptable(id)}) AS some`.execute(db);
  return rows[0]!.some;
}

/** Other connections that cannot work on a company that this one can read. */
const idleReaders = (id: string, more = sql``) => sql`
  FROM access mine
  JOIN access other ON other.company_id = mine.company_id AND other.connection_id <> mine.connection_id
  JOIN connections c ON c.id = other.connection_id AND (c.status <> 'active' OR other.lost_at IS NOT NULL)
  ${more}
  WHERE mine.connection_id = ${id} AND mine.lost_at IS NULL`;

/** Assets of such connections that no worker holds. */
export const adoptable = (id: string) =>
  idleReaders(
    id,
    sql`JOIN assets ON assets.connection_id = c.id AND assets.company_id = mine.company_id
      AND ${notLeased}`,
  );
