import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { reasonOf } from '../../floor/errors.ts';
import { clockFinding, type Finding, findingsOn } from '../../floor/finding.ts';
import { pendingMigrations } from './migrations.ts';
import { databaseProblem } from './unreachable.ts';

const { note, ok, wrong } = findingsOn('database');

/** The oldest PostgreSQL that is maintained, and that the tests run on. */
const oldest = 14;

/** `behind`: the next start updates the schema. `unusable`: it does not answer, or refuses what is needed. */
export type DatabaseState = 'up_to_date' | 'behind' | 'unusable';

/** Checks the database without changing it. It can be read if it is up to date. */
export async function* probeDatabase(options: { url: string }): AsyncGenerator<Finding, DatabaseState> {
  const pool = new pg.Pool({
    connectionString: options.url,
    max: 1,
    connectionTimeoutMillis: 10_000,
    query_timeout: 10_000,
  });
  pool.on('error', () => {});
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
  try {
    let began = performance.now();
    let facts: { version: string; writable: boolean; connections: number; creates: boolean; drills: boolean };
    try {
      await pool.query('SELECT 1');
      began = performance.now();
      const { rows } = await pool.query(`SELECT current_setting('server_version') AS version,
        NOT pg_is_in_recovery() AS writable, current_setting('max_connections')::int AS connections,
        has_schema_privilege(current_schema(), 'CREATE') AS creates,
        has_database_privilege(current_database(), 'CREATE') AS drills`);
      facts = rows[0];
    } catch (error) {
      const { found, remedy } = databaseProblem(error, options.url) ?? {
        found: reasonOf(error),
        remedy: 'correct the server, or DATABASE_URL',
      };
      yield wrong('PostgreSQL', found, remedy);
      return 'unusable';
    }
    const ms = Math.round(performance.now() - began);
    const version = facts.version.split(' ')[0]!;
    const found = `${version}, answers in ${Math.max(1, ms)} ms`;
    if (Number.parseInt(version, 10) < oldest) {
      yield wrong('PostgreSQL', found, `upgrade to ${oldest} or newer`);
    } else if (!facts.writable) {
      yield wrong('PostgreSQL', `${version}, a read-only replica`, 'point DATABASE_URL at the primary');
      return 'unusable';
    } else yield ok('PostgreSQL', found);

    const pending = await pendingMigrations(db);
    if (pending.length === 0) yield ok('schema', 'up to date');
    else if (facts.creates) {
      const next = `${pending.length} ${pending.length === 1 ? 'change' : 'changes'} to make`;
      yield ok('schema', next, 'the next start updates it');
    } else {
      const remedy = 'GRANT CREATE ON SCHEMA public to the user of DATABASE_URL';
      yield wrong('schema', 'needs changes, and this user has no permission for them', remedy);
    }
    if (!facts.drills) {
      yield note('drills', 'this user cannot create schemas', 'GRANT CREATE ON DATABASE … TO the user of DATABASE_URL');
    }
    if (facts.connections < 50) {
      const remedy =
        'each process opens 25 connections, or 34 without Redis: raise max_connections, or run fewer processes';
      yield note('connections', `${facts.connections} at most`, remedy);
    }
    const startedAt = Date.now();
    const { rows } = await pool.query('SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now');
    yield clockFinding('database', Number(rows[0].now) - (startedAt + Date.now()) / 2, 'the database');
    return pending.length === 0 ? 'up_to_date' : 'behind';
  } finally {
    await db.destroy();
  }
}
