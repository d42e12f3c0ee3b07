import { sql } from 'kysely';
import type { ConnectionStatus, Database } from '../database/schema.ts';

/** `highWaterMark` is in epoch milliseconds, as in `access`. */
export interface ReadableCompany {
  id: string;
  name: string;
  highWaterMark: number | null;
}

/** The status of a connection, and the companies that it can read. */
export interface CompanyAccess {
  status: ConnectionStatus;
  readable: ReadableCompany[];
}

/** The companies that a connection can read, its status, and the holder of its sync lease. */
export async function companyAccess(db: Database, id: string) {
  const { rows } = await sql<CompanyAccess & { syncOwner: string | null }>`
    SELECT sync_owner, ${companyAccessOf(id)} FROM connections WHERE id = ${id}`.execute(db);
  return rows[0];
}

/** The columns of a `CompanyAccess`, for a row of `connections`. */
export const companyAccessOf = (id: string) => sql`
  status, coalesce((
    SELECT jsonb_agg(jsonb_build_object('id', companies.id, 'name', name, 'highWaterMark', high_water_mark) ORDER BY companies.id)
    FROM access JOIN companies ON companies.id = company_id
    WHERE connection_id = ${id} AND lost_at IS NULL), '[]') AS readable`;
