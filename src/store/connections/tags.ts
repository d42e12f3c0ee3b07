import { type RawBuilder, sql } from 'kysely';
import type { Tags } from '../../floor/tags.ts';
import type { Database } from '../database/schema.ts';

/** SQL: whether a connection has all of these tags. */
export const haveTags = (tags: readonly Tags[]): RawBuilder<boolean> =>
  sql<boolean>`connections.tags @> ALL(${tags.map((tag) => JSON.stringify(tag))}::text[]::jsonb[])`;

/** The ids of the connections with all of these tags. */
export async function withTags(db: Database, tags: readonly Tags[]): Promise<string[]> {
  const rows = await db.selectFrom('connections').select('id').where(haveTags(tags)).execute();
  return rows.map(({ id }) => id);
}

/** The tags of these connections, by id. */
export async function tagsOf(db: Database, ids: string[]): Promise<Map<string, Tags>> {
  if (ids.length === 0) return new Map();
  const rows = await db.selectFrom('connections').select(['id', 'tags']).where('id', 'in', ids).execute();
  return new Map(rows.map(({ id, tags }) => [id, tags]));
}

/** The tags of each connection that is not disconnected. */
export async function tagged(db: Database): Promise<{ id: string; tags: Tags }[]> {
  return db.selectFrom('connections').select(['id', 'tags']).where('status', '<>', 'disconnected').execute();
}
