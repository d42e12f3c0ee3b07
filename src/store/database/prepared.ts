import { createHash } from 'node:crypto';
import type { QueryResult, RawBuilder } from 'kysely';
import type { Database } from './schema.ts';

/**
 * SQLSTATEs of a statement that cannot be executed by its name: the name is unknown or taken, because a pooler uses another
 * connection for it; or a newer release has added a column to its result.
 */
const lostNames = ['26000', '42P05', '0A000'];

let named = true;

/**
 * Executes a frequent statement as one of pg's named queries: PostgreSQL parses it once for each connection. Behind a pooler
 * that does not keep names (PgBouncer before 1.21), this and later ones are executed without a name.
 */
export async function prepared<Row>(db: Database, statement: RawBuilder<Row>): Promise<QueryResult<Row>> {
  const query = statement.compile(db);
  if (!named) return db.executeQuery(query);
  const { sql: text } = query;
  // A name stands for one text, also while two releases share the connections of a pooler.
  const name = createHash('md5').update(text).digest('hex');
  try {
    // Kysely hands this to pg as it is; its type knows only texts.
    return await db.executeQuery({ ...query, sql: { name, text } as never });
  } catch (error) {
    if (!lostNames.includes((error as { code?: string }).code ?? '')) throw error;
    named = false;
    if (db.isTransaction) throw error;
    return db.executeQuery(query);
  }
}
