import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { HttpError, logLineOf } from '../http-error.ts';
import type { Batch, Persistence } from './store.ts';
import type { TableName, Tables } from './tables.ts';

/** How long the server may take to notice that the process of an earlier library was killed. */
const TAKEOVER_MS = 5000;

/** The rows of all tables. n is the order in which they were added. */
const SCHEMA = `
  CREATE SCHEMA IF NOT EXISTS library;
  CREATE TABLE library.rows (
    n bigint GENERATED ALWAYS AS IDENTITY,
    table_name text NOT NULL,
    key text NOT NULL,
    data json NOT NULL,
    PRIMARY KEY (table_name, key)
  )`;

const SAVE = `
  WITH deleted AS (
    DELETE FROM library.rows USING unnest($4::text[], $5::text[]) AS gone (table_name, key)
    WHERE rows.table_name = gone.table_name AND rows.key = gone.key
  )
  INSERT INTO library.rows (table_name, key, data) SELECT * FROM unnest($1::text[], $2::text[], $3::json[])
  ON CONFLICT (table_name, key) DO UPDATE SET data = excluded.data`;

/** Saves a store in the schema `library` of a PostgreSQL database, and uses no other schema. */
export async function openDatabase(url: string, log: (line: object) => void): Promise<Persistence> {
  const pool = new pg.Pool({
    connectionString: url,
    // One connection, which holds the lock. A new connection must take the lock first.
    max: 1,
    idleTimeoutMillis: 0,
    connectionTimeoutMillis: 10_000,
    query_timeout: 10_000,
    keepAlive: true,
    application_name: 'asset-library',
    onConnect: takeLock as never,
  });
  pool.on('error', (error) => log({ warning: 'database connection lost', error: error.message }));
  pool.on('connect', (client) => client.on('error', () => {}));
  try {
    const { rows } = await pool.query("SELECT to_regclass('library.rows') AS existing");
    if (rows[0].existing === null) await pool.query(SCHEMA);
  } catch (error) {
    await pool.end();
    throw error;
  }

  return {
    async load<Table extends TableName>(table: Table) {
      const query = 'SELECT data FROM library.rows WHERE table_name = $1 ORDER BY n';
      return (await pool.query<{ data: Tables[Table] }>(query, [table])).rows.map(({ data }) => data);
    },

    async save(batch) {
      try {
        await pool.query(SAVE, parametersOf(batch));
      } catch (error) {
        log(logLineOf(error));
        throw new HttpError(503, 'temporarily_unavailable', 'The change could not be saved. Try again in a moment.', {
          'retry-after': '1',
        });
      }
    },

    close: () => pool.end(),
  };
}

/** One library per database: a second one would not see the data that the first one has in memory. */
async function takeLock(client: pg.ClientBase): Promise<void> {
  const deadline = Date.now() + TAKEOVER_MS;
  for (;;) {
    const { rows } = await client.query(
      "SELECT pg_try_advisory_lock(hashtext('library'), hashtext('owner')) AS is_taken",
    );
    if (rows[0].is_taken) return;
    if (Date.now() > deadline) throw new Error('This database is in use by another library. Use another database.');
    await pause(100);
  }
}

function parametersOf(batch: Batch): string[][] {
  const changes = [...batch].flatMap(([name, rows]) => [...rows].map(([key, row]) => ({ name, key, row })));
  const puts = changes.filter(({ row }) => row !== null);
  const deletes = changes.filter(({ row }) => row === null);
  return [
    puts.map(({ name }) => name),
    puts.map(({ key }) => key),
    puts.map(({ row }) => JSON.stringify(row)),
    deletes.map(({ name }) => name),
    deletes.map(({ key }) => key),
  ];
}
