import { sql } from 'kysely';
import type { ApiToken, Database } from '../database/schema.ts';

/** Uses are recorded once in this time. */
const recordEvery = sql`interval '1 minute'`;

/** Undefined: another token has this name. */
export async function add(
  db: Database,
  token: Omit<ApiToken, 'createdAt' | 'lastUsedAt'>,
): Promise<ApiToken | undefined> {
  return db
    .insertInto('apiTokens')
    .values(token)
    .onConflict((conflict) => conflict.column('name').doNothing())
    .returningAll()
    .executeTakeFirst();
}

/** The valid token with this hash, and records the use. */
export async function use(db: Database, hash: string): Promise<ApiToken | undefined> {
  const found = await db
    .selectFrom('apiTokens')
    .selectAll()
    .where('hash', '=', hash)
    .where(sql<boolean>`expires_at > now()`)
    .executeTakeFirst();
  if (!found) return undefined;
  await sql`
    UPDATE api_tokens SET last_used_at = now()
    WHERE id = ${found.id} AND (last_used_at IS NULL OR last_used_at < now() - ${recordEvery})`.execute(db);
  return found;
}

/** Whether a token still exists and has not expired. Does not count as use. */
export async function isValid(db: Database, id: string): Promise<boolean> {
  const { rows } = await sql`SELECT FROM api_tokens WHERE id = ${id} AND expires_at > now()`.execute(db);
  return rows.length > 0;
}

/** All tokens, expired ones too, in the order of their names. */
export async function list(db: Database): Promise<ApiToken[]> {
  return db.selectFrom('apiTokens').selectAll().orderBy('name').execute();
}

/** Removes a token by id, name or hash, in this order. Undefined: there is no such token. */
export async function remove(db: Database, idOrName: string, hash: string): Promise<ApiToken | undefined> {
  for (const [column, value] of [['id', idOrName] as const, ['name', idOrName] as const, ['hash', hash] as const]) {
    const removed = await db.deleteFrom('apiTokens').where(column, '=', value).returningAll().executeTakeFirst();
    if (removed) return removed;
  }
  return undefined;
}
