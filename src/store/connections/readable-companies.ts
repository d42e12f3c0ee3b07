import { sql } from 'kysely';
import type { ConnectionStatus, Database } from '../database/schema.ts';

/** `mark`: epoch milliseconds, as in `access`. */
export interface ReadableCompany {
  id: string;
  name: string;
  mark: number | null;
}

/**
 * The companies that a connection can read, each with its mark. `shared`: a connection that is not active, or can no longer
 * read one of these, may have left work; whether it has is another statement's, for that one takes PostgreSQL long to plan.
 */
export interface Standing {
  status: ConnectionStatus;
  readable: ReadableCompany[];
  shared: boolean;
}

/** That, and who holds the lease of the connection's sync. */
export async function standing(db: Database, id: string) {
  const { rows } = await sql<Standing & { syncOwner: string | null }>`
    SELECT sync_owner, ${standingOf(id)} FROM connections WHERE id = ${id}`.execute(db);
  return rows[0];
}

/** The columns of that, of a row of `connections`. */
export const standingOf = (id: string) => sql`
  status, status = 'active' AND EXISTS (SELECT ${idleReaders(id)}) AS shared, coalesce((
    SELECT jsonb_agg(jsonb_build_object('id', companies.id, 'name', name, 'mark', mark) ORDER BY companies.id)
    FROM access JOIN companies ON companies.id = company_id
    WHERE connection_id = ${id} AND lost_at IS NULL), '[]') AS readable`;

/** Whether there is any such work. */
export async function adoptableBy(db: Database, id: string): Promise<boolean> {
  const { rows } = await sql<{ some: boolean }>`SELECT EXISTS (SELECT ${adoptable(id)}) AS some`.execute(db);
  return rows[0]!.some;
}

/** Connections that cannot work on a company that this one can read. */
const idleReaders = (id: string, more = sql``) => sql`
  FROM access mine
  JOIN access other ON other.company_id = mine.company_id AND other.connection_id <> mine.connection_id
  JOIN connections c ON c.id = other.connection_id AND (c.status <> 'active' OR other.lost_at IS NOT NULL)
  ${more}
  WHERE mine.connection_id = ${id} AND mine.lost_at IS NULL`;

/** Assets of which one of these is in charge. */
export const adoptable = (id: string) =>
  idleReaders(
    id,
    sql`JOIN assets ON assets.connection_id = c.id AND assets.company_id = mine.company_id
      AND (assets.lease_until IS NULL OR assets.lease_until < now())`,
  );
