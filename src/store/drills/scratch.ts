import { randomBytes } from 'node:crypto';
import { Kysely, PostgresDialect, type PostgresPool, sql } from 'kysely';
import type pg from 'pg';
import type { Log } from '../../floor/log.ts';
import { openPool, plugins } from '../database/database.ts';
import { migrations } from '../database/migrations.ts';
import type { Database, Schema } from '../database/schema.ts';
import { installation } from '../settings/settings.ts';

/** A schema of a drill with tables of its own, and a connection whose search_path is only this schema. */
export interface Scratch {
  schema: string;
  db: Database;
  /** Drops it. */
  close(): Promise<void>;
}

/** Each drill has a schema of its own: a process that lost its lease must not write into that of the next one. */
const prefixOf = async (db: Database) => `asset_mirror_drill_${(await installation(db)).slice(0, 8)}_`;

/** Drops what earlier drills have left, and creates the tables of the mirror in a new schema. */
export async function openScratch(db: Database, options: { url: string; log: Log }): Promise<Scratch> {
  await dropScratch(db);
  const schema = `${await prefixOf(db)}${randomBytes(4).toString('hex')}`;
  await sql`CREATE SCHEMA ${sql.id(schema)}`.execute(db);
  const pool = openPool(options, { max: 2, query_timeout: 300_000, application_name: 'asset-mirror drill' });
  const scratch: Database = new Kysely<Schema>({
    dialect: new PostgresDialect({ pool: seeingOnly(schema, pool) }),
    plugins,
  });
  const close = async () => {
    await scratch.destroy();
    await dropSchema(db, schema);
  };
  try {
    await createTables(scratch);
  } catch (error) {
    await close();
    throw error;
  }
  return { schema, db: scratch, close };
}

/** Drops the schemas of drills whose processes have died. */
async function dropScratch(db: Database): Promise<void> {
  const { rows } = await sql<{ schema: string }>`
    SELECT nspname AS schema FROM pg_namespace WHERE starts_with(nspname, ${await prefixOf(db)})`.execute(db);
  for (const { schema } of rows) await dropSchema(db, schema);
}

async function dropSchema(db: Database, schema: string): Promise<void> {
  await db.transaction().execute(async (tx) => {
    // A backup that is reading the schema must not block the drill.
    await sql`SET LOCAL lock_timeout = '20s'`.execute(tx);
    await sql`DROP SCHEMA IF EXISTS ${sql.id(schema)} CASCADE`.execute(tx);
  });
}

async function createTables(scratch: Database): Promise<void> {
  await scratch.transaction().execute(async (tx) => {
    for (const migration of Object.values(migrations)) await migration.up(tx);
    // The notices of this trigger would wake the processes of the service.
    await sql`DROP TRIGGER events_tell ON events`.execute(tx);
    // The extension is in another schema, so the migration could not use it.
    await sql`
      DO $$ DECLARE home text := (
        SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm');
      BEGIN
        IF home IS NOT NULL AND to_regclass('asset_facets_name') IS NULL THEN
          EXECUTE format('CREATE INDEX asset_facets_name ON asset_facets USING gin (name %I.gin_trgm_ops)', home);
        END IF;
      END $$`.execute(tx);
  });
}

/**
 * Each statement is in a transaction that sees only the schema. A setting of the session would not do: behind a pooler, the next
 * statement may run in another session, and change the tables of the service.
 */
const seeingOnly = (schema: string, pool: pg.Pool): PostgresPool => ({
  options: {},
  end: () => pool.end(),
  async connect() {
    const client = await pool.connect();
    let isInTransaction = false;
    async function query(text: string, values?: unknown[]): Promise<pg.QueryResult> {
      if (/^(begin|start transaction)/.test(text)) {
        const begun = await client.query(text);
        await client.query(`SET LOCAL search_path TO "${schema}"`);
        isInTransaction = true;
        return begun;
      }
      if (isInTransaction) {
        isInTransaction = text !== 'commit' && text !== 'rollback';
        return client.query(text, values);
      }
      await query('begin');
      try {
        const result = await query(text, values);
        await query('commit');
        return result;
      } catch (error) {
        await query('rollback').catch(() => {});
        throw error;
      }
    }
    return { query: query as never, release: (destroy) => client.release(destroy) };
  },
});
