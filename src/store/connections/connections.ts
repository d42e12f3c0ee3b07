import { sql } from 'kysely';
import type { Bandwidth } from '../../floor/bandwidth-limit.ts';
import type { Tags } from '../../floor/tags.ts';
import type { Connection, ConnectionStatus, Database } from '../database/schema.ts';
import { atMicros, microsOf } from '../database/time.ts';
import { haveTags } from './tags.ts';

export async function get(db: Database, id: string): Promise<Connection | undefined> {
  return db.selectFrom('connections').selectAll().where('id', '=', id).executeTakeFirst();
}

export async function ofUser(db: Database, userId: string): Promise<Connection | undefined> {
  return db.selectFrom('connections').selectAll().where('userId', '=', userId).executeTakeFirst();
}

export async function list(db: Database): Promise<Connection[]> {
  return db.selectFrom('connections').selectAll().orderBy('connectedAt').orderBy('id').execute();
}

export async function countByStatus(db: Database): Promise<Partial<Record<ConnectionStatus, number>>> {
  const rows = await db
    .selectFrom('connections')
    .select(['status', (e) => e.fn.countAll<number>().as('count')])
    .groupBy('status')
    .execute();
  return Object.fromEntries(rows.map(({ status, count }) => [status, count]));
}

/** A page of connections, oldest first. */
export async function search(
  db: Database,
  filter: {
    status?: ConnectionStatus | undefined;
    q?: string | undefined;
    /** All of these. */
    tags?: readonly Tags[] | undefined;
    after?: { connected: number; id: string } | undefined;
    limit: number;
  },
): Promise<(Connection & { connectedMicros: number })[]> {
  const { after, q, tags = [] } = filter;
  const like = q && `%${q.replace(/[\\%_]/g, '\\$&')}%`;
  return db
    .selectFrom('connections')
    .selectAll()
    .select(microsOf('connected_at').as('connectedMicros'))
    .$if(filter.status !== undefined, (query) => query.where('status', '=', filter.status!))
    .$if(tags.length > 0, (query) => query.where(haveTags(tags)))
    .$if(q !== undefined, (query) =>
      query.where(
        sql<boolean>`((id = ${q} OR length(${q}) >= 4 AND starts_with(id, ${q})) OR user_name ILIKE ${like} OR user_email ILIKE ${like} OR id IN (
          SELECT a.connection_id FROM access a JOIN companies c ON c.id = a.company_id
          WHERE a.lost_at IS NULL AND (c.id = ${q} OR c.name ILIKE ${like})))`,
      ),
    )
    .$if(after !== undefined, (query) =>
      query.where(sql<boolean>`(connected_at, id) > (${atMicros(after!.connected)}, ${after!.id})`),
    )
    .orderBy('connectedAt')
    .orderBy('id')
    .limit(filter.limit)
    .execute();
}

/** Bandwidth limits of connections that have one, per process. */
export async function bandwidths(db: Database): Promise<Map<string, Bandwidth>> {
  const { rows } = await sql<{ id: string; bandwidth: Bandwidth }>`
    SELECT id, settings->'bandwidth' AS bandwidth FROM connections WHERE settings ? 'bandwidth'`.execute(db);
  return new Map(rows.map(({ id, bandwidth }) => [id, bandwidth]));
}

/** Returns the companies of `ids` that the database does not have. */
export async function unknownCompanies(db: Database, ids: string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const known = await db.selectFrom('companies').select('id').where('id', 'in', ids).execute();
  return ids.filter((id) => !known.some((company) => company.id === id));
}

/** The companies that these connections can read now, each with its high-water mark and what is held. */
export async function companies(db: Database, connectionIds: string[]) {
  if (connectionIds.length === 0) return [];
  return db
    .selectFrom('access')
    .innerJoin('companies', 'companies.id', 'access.companyId')
    .select(['access.connectionId', 'companies.id', 'companies.name', 'access.highWaterMark', 'access.held'])
    .where('access.connectionId', 'in', connectionIds)
    .where('access.lostAt', 'is', null)
    .orderBy('companies.id')
    .execute();
}
