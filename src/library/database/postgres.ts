import { setTimeout as pause } from 'node:timers/promises';
import { CamelCasePlugin, Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { Refusal } from '../service.ts';
import { migrate } from './migrations.ts';
import { type Batch, type Keeper, valuesOf } from './store.ts';
import { KEYS, type TableName, type Tables } from './tables.ts';

/** One library per database: another would not see what this one has in memory. */
const OWNER_LOCK = "SELECT pg_try_advisory_lock(hashtext('library'), hashtext('owner')) AS mine";
/** How long the connection of a process that was killed may take to be noticed. */
const TAKEOVER = 5000;
const ROWS_AT_ONCE = 1000;

// Times and sizes fit a double exactly.
const types = {
  getTypeParser(oid: number, format?: 'text' | 'binary') {
    return oid === pg.types.builtins.INT8 ? Number : pg.types.getTypeParser(oid, format as 'text');
  },
};

/** The schema `library` of a PostgreSQL database. Nothing outside of that schema is touched. */
export async function openDatabase(url: string, log: (line: object) => void): Promise<Keeper> {
  const pool = new pg.Pool({
    connectionString: url,
    // The one connection holds the lock for as long as it lives; a new one has to take it first.
    max: 1,
    idleTimeoutMillis: 0,
    connectionTimeoutMillis: 10_000,
    query_timeout: 10_000,
    keepAlive: true,
    application_name: 'asset-library',
    types: types as never,
    onConnect: own as never,
  });
  const onError = (error: Error) => log({ warning: 'the connection to the database was lost', error: error.message });
  pool.on('error', onError);
  pool.on('connect', (client) => client.on('error', () => {}));
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] });
  const library = db.withSchema('library');
  try {
    await migrate(db as Kysely<unknown>);
  } catch (error) {
    await db.destroy();
    throw error;
  }

  return {
    async load(table) {
      const rows = await library
        .selectFrom(table as 'settings')
        .selectAll()
        .orderBy(sql.ref('n'))
        .execute();
      return rows.map(({ n: _, ...row }: object & { n?: number }) => row) as never;
    },

    async keep(batch) {
      try {
        await library.transaction().execute(async (transaction) => {
          for (const [table, rows] of batch) await write(transaction, table, rows);
        });
      } catch (error) {
        log({ error: error instanceof Error ? error.stack : String(error) });
        throw new Refusal(503, 'temporarily_unavailable', 'This could not be saved. Please try again in a moment.', {
          'retry-after': '1',
        });
      }
    },

    close: () => db.destroy(),
  };
}

async function own(client: pg.ClientBase): Promise<void> {
  const deadline = Date.now() + TAKEOVER;
  for (;;) {
    const { rows } = await client.query<{ mine: boolean }>(OWNER_LOCK);
    if (rows[0]!.mine) return;
    if (Date.now() > deadline) throw new Error('This database is in use by another library. Stop it, or use another.');
    await pause(100);
  }
}

async function write(
  db: Kysely<Tables>,
  name: TableName,
  rows: Batch extends Map<unknown, infer R> ? R : never,
): Promise<void> {
  // What is true of one table here is true of all of them, and the types know each on its own.
  const table = name as 'settings';
  const columns = KEYS[name] as 'name'[];
  const puts = [...rows.values()].filter((row) => row !== null) as Tables['settings'][];
  for (let i = 0; i < puts.length; i += ROWS_AT_ONCE) {
    await db
      .insertInto(table)
      .values(puts.slice(i, i + ROWS_AT_ONCE))
      .onConflict((conflict) =>
        conflict.columns(columns).doUpdateSet((row) => {
          const others = Object.keys(puts[0]!).filter((column) => !columns.includes(column as 'name'));
          return Object.fromEntries(
            others.map((column) => [column, row.ref(`excluded.${column}` as 'excluded.value')]),
          );
        }),
      )
      .execute();
  }
  for (const [key, row] of rows) {
    if (row === null)
      await db
        .deleteFrom(table)
        .where((where) => where.and(Object.fromEntries(valuesOf(name, key))))
        .execute();
  }
}
