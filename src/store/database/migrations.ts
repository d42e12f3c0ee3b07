import { setTimeout } from 'node:timers/promises';
import { type Kysely, PostgresAdapter, PostgresDialect, sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import type { Log } from '../../floor/log.ts';
import { initialSchema } from './initial-schema.ts';

/**
 * Forward only. A released migration is never edited. Each must be safe while processes of the release before it run: expand
 * first, contract in a later release. One that breaks earlier releases is named like `0099_contract_…`, so they refuse to start.
 */
export const migrations: Record<string, Migration> = { '0001_start': initialSchema };

/** Migrations that the schema does not have yet. */
export async function pendingMigrations(db: Kysely<unknown>): Promise<string[]> {
  const all = await new Migrator({ db, provider: { getMigrations: async () => migrations } }).getMigrations();
  return all.filter(({ executedAt }) => !executedAt).map(({ name }) => name);
}

/** The key of the advisory lock under which one process at a time migrates. */
const migrationLock = '3853314791062309107';

/** Kysely's lock belongs to a session, which a pooler may change between two statements. Ours belongs to a transaction. */
class Adapter extends PostgresAdapter {
  override async acquireMigrationLock(): Promise<void> {}
  override async releaseMigrationLock(): Promise<void> {}
}
export class MigrationDialect extends PostgresDialect {
  override createAdapter(): PostgresAdapter {
    return new Adapter();
  }
}

/**
 * Brings the schema up to date, under a lock if there is something to do, so any number of processes may start at once. This
 * release also runs on the schema of a newer one, as during a rollout or after a rollback. `db` uses `MigrationDialect`.
 * @throws Error if a newer release has removed what this one needs
 */
export async function migrate(db: Kysely<unknown>, log: Log, known = migrations): Promise<void> {
  let { newer, behind } = await compare(db, known);
  for (let attempt = 1; behind; attempt++) {
    try {
      await db.transaction().execute(async (tx) => {
        await sql`SELECT pg_advisory_xact_lock(${sql.raw(migrationLock)})`.execute(tx);
        ({ newer, behind } = await compare(tx, known));
        if (!behind) return;
        await lockTables(tx);
        await upgrade(tx, { ...known, ...Object.fromEntries(newer.map((name) => [name, done])) });
      });
      behind = false;
    } catch (error) {
      if (!(error instanceof TablesInUse)) throw error;
      if (attempt % logEvery === 1)
        log.info(
          { event: 'database.migration_waits' },
          'the migration waits until other sessions release their tables',
        );
      await setTimeout(pause);
    }
  }
  if (newer.length > 0)
    log.warn(
      { event: 'database.newer_schema_found', migrations: newer },
      'the database schema is newer than this release',
    );
}

/** Milliseconds. PostgreSQL searches for deadlocks when a statement has waited for 1 s (`deadlock_timeout`). */
const longestLocking = 800;
const pause = 200;
/** Attempts: about 20 s. */
const logEvery = 20;

class TablesInUse extends Error {}

/**
 * Locks all tables before the first is changed, so that a migration and a running process do not wait for each other.
 * @throws TablesInUse if that takes so long that a deadlock is possible: then the process goes first
 */
async function lockTables(tx: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ name: string }>`
    SELECT format('%I', relname) AS name FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND relname NOT LIKE 'kysely_%'
    ORDER BY relname`.execute(tx);
  if (rows.length === 0) return;
  await sql`SET LOCAL statement_timeout = ${sql.lit(longestLocking)}`.execute(tx);
  await sql`LOCK TABLE ${sql.raw(rows.map(({ name }) => name).join(', '))}`.execute(tx).catch((error) => {
    throw [queryCanceled, deadlockDetected].includes(error.code) ? new TablesInUse() : error;
  });
  await sql`SET LOCAL statement_timeout = 0`.execute(tx);
}
const queryCanceled = '57014';
/** A server that was suspended searches for a deadlock before it ends the statement. */
const deadlockDetected = '40P01';

/** Stands for a migration of a newer release. */
const done: Migration = { async up() {} };

async function upgrade(tx: Kysely<unknown>, all: Record<string, Migration>): Promise<void> {
  const migrator = new Migrator({ db: tx, provider: { getMigrations: async () => all } });
  const { error, results } = await migrator.migrateToLatest();
  if (!error) return;
  const failed = results?.find((result) => result.status === 'Error')?.migrationName ?? 'the schema';
  throw new Error(`cannot bring the database up to date (${failed})`, { cause: error });
}

/** `newer`: migrations of the database that are unknown. `behind`: it lacks some that are known. */
async function compare(
  db: Kysely<unknown>,
  known: Record<string, Migration>,
): Promise<{ newer: string[]; behind: boolean }> {
  const there = await doneMigrations(db).catch((cause) => {
    throw new Error('cannot bring the database up to date (the schema)', { cause });
  });
  const newer = there.filter((name) => !(name in known));
  const contract = newer.find((name) => /^\d+_contract_/.test(name));
  if (contract !== undefined) {
    throw new Error(
      `a newer release has changed the database (${contract}), and this one can no longer use it; start the newer release`,
    );
  }
  return { newer, behind: Object.keys(known).some((name) => !there.includes(name)) };
}

async function doneMigrations(db: Kysely<unknown>): Promise<string[]> {
  const { rows: there } = await sql<{ name: string | null }>`SELECT to_regclass('kysely_migration') AS name`.execute(
    db,
  );
  if (!there[0]?.name) return [];
  const { rows } = await sql<{ name: string }>`SELECT name FROM kysely_migration ORDER BY name`.execute(db);
  return rows.map(({ name }) => name);
}
