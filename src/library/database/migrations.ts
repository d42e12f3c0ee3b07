import { type Kysely, sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';

/** Forward only. A released migration is never edited. */
const migrations: Record<string, Migration> = {
  '0001_start': {
    async up(db: Kysely<unknown>) {
      // n is the order in which rows came.
      await sql`
        CREATE TABLE library.apps (
          n bigint GENERATED ALWAYS AS IDENTITY,
          client_id text PRIMARY KEY,
          name text NOT NULL,
          logo_url text,
          website_url text NOT NULL,
          redirect_uris text[] NOT NULL,
          secret_hash text NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE library.users (
          n bigint GENERATED ALWAYS AS IDENTITY,
          id text PRIMARY KEY,
          name text NOT NULL,
          email text NOT NULL,
          password_hash text NOT NULL,
          removed boolean NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE library.companies (
          n bigint GENERATED ALWAYS AS IDENTITY,
          id text PRIMARY KEY,
          name text NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE library.access (
          n bigint GENERATED ALWAYS AS IDENTITY,
          user_id text NOT NULL,
          company_id text NOT NULL,
          allowed boolean NOT NULL,
          PRIMARY KEY (user_id, company_id)
        )`.execute(db);
      // Times are the service's own clock, in epoch milliseconds.
      await sql`
        CREATE TABLE library.connections (
          n bigint GENERATED ALWAYS AS IDENTITY,
          id text PRIMARY KEY,
          user_id text NOT NULL,
          client_id text NOT NULL,
          scope text NOT NULL,
          companies text[],
          since bigint NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE library.codes (
          n bigint GENERATED ALWAYS AS IDENTITY,
          hash text PRIMARY KEY,
          client_id text NOT NULL,
          user_id text NOT NULL,
          redirect_uri text NOT NULL,
          challenge text NOT NULL,
          companies text[],
          expires_at bigint NOT NULL,
          connection_id text
        )`.execute(db);
      await sql`
        CREATE TABLE library.access_tokens (
          n bigint GENERATED ALWAYS AS IDENTITY,
          hash text PRIMARY KEY,
          connection_id text NOT NULL,
          expires_at bigint NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE library.refresh_tokens (
          n bigint GENERATED ALWAYS AS IDENTITY,
          hash text PRIMARY KEY,
          connection_id text NOT NULL,
          used boolean NOT NULL,
          replaces text
        )`.execute(db);
      await sql`
        CREATE TABLE library.sessions (
          n bigint GENERATED ALWAYS AS IDENTITY,
          hash text PRIMARY KEY,
          user_id text NOT NULL,
          expires_at bigint NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE library.files (
          n bigint GENERATED ALWAYS AS IDENTITY,
          company_id text NOT NULL,
          path text NOT NULL,
          size bigint NOT NULL,
          mtime_ms double precision NOT NULL,
          upload_date bigint NOT NULL,
          duration double precision,
          width integer,
          height integer,
          PRIMARY KEY (company_id, path)
        )`.execute(db);
      await sql`
        CREATE TABLE library.settings (
          n bigint GENERATED ALWAYS AS IDENTITY,
          name text PRIMARY KEY,
          value text NOT NULL
        )`.execute(db);
    },
  },
};

/** Brings the schema up to date, under the migrator's lock. */
export async function migrate(db: Kysely<unknown>): Promise<void> {
  const migrator = new Migrator({
    db,
    provider: { getMigrations: async () => migrations },
    migrationTableSchema: 'library',
    // Names of its own: a migrator of another schema takes tables of its usual names for its own, wherever they are.
    migrationTableName: 'migrations',
    migrationLockTableName: 'migration_lock',
  });
  const { error } = await migrator.migrateToLatest();
  if (error) throw new Error("bring the library's database up to date", { cause: error });
}
