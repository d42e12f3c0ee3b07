import { type Kysely, PostgresAdapter, PostgresDialect, sql } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import type { Log } from '../log.ts';

/**
 * Forward only. A released migration is never edited; each must be safe while processes of the version before it run
 * (expand first, contract in a later release). One that takes away what an earlier release needs has a name like
 * `0099_contract_…`: by that the earlier release knows that it must not start any more.
 */
export const migrations: Record<string, Migration> = {
  '0001_start': {
    async up(db: Kysely<unknown>) {
      await sql`
        CREATE TABLE connections (
          id text PRIMARY KEY,
          user_id text NOT NULL UNIQUE,
          user_name text NOT NULL,
          user_email text NOT NULL,
          status text NOT NULL CHECK (status IN ('active', 'paused', 'disconnected')),
          -- Sealed pair of access and refresh token. The version counts the pairs: whoever writes one names the version it replaces.
          tokens text,
          token_version integer NOT NULL DEFAULT 1,
          access_expires_at timestamptz,
          -- The lease of the one process that may refresh.
          refresh_owner text,
          refresh_until timestamptz,
          -- When a refresh was sent whose answer never came: the service may have rotated the token.
          refresh_unanswered_at timestamptz,
          -- The lease of the one sync that may run.
          sync_owner text,
          sync_until timestamptz,
          parked_until timestamptz,
          settings jsonb NOT NULL DEFAULT '{}',
          connected_at timestamptz NOT NULL DEFAULT now(),
          last_sync_at timestamptz,
          last_error text,
          disconnected_at timestamptz,
          disconnect_reason text
        )`.execute(db);
      await sql`
        CREATE TABLE companies (
          id text PRIMARY KEY,
          name text NOT NULL
        )`.execute(db);
      // The mark belongs to the pair: what one user may list need not be what another may.
      await sql`
        CREATE TABLE access (
          connection_id text NOT NULL REFERENCES connections,
          company_id text NOT NULL REFERENCES companies,
          mark bigint,
          gained_at timestamptz NOT NULL DEFAULT now(),
          lost_at timestamptz,
          PRIMARY KEY (connection_id, company_id)
        )`.execute(db);
      await sql`
        CREATE TABLE assets (
          id text PRIMARY KEY,
          connection_id text NOT NULL REFERENCES connections,
          company_id text NOT NULL REFERENCES companies,
          project_id text,
          asset_type text,
          name text,
          size bigint,
          upload_date bigint,
          -- The asset as the listing last had it, and as it last gave itself; both without signed links.
          listed jsonb NOT NULL,
          -- How often a listing has changed the row: a worker that began before must look again.
          revision integer NOT NULL DEFAULT 0,
          detail jsonb,
          state text NOT NULL CHECK (state IN ('pending', 'processing', 'transferring', 'mirrored', 'unavailable', 'failed', 'gone')),
          reason text,
          attempts integer NOT NULL DEFAULT 0,
          -- How often in a row it was put off without an attempt being spent.
          waits integer NOT NULL DEFAULT 0,
          processing_since timestamptz,
          -- When something is to be done for it next; null: nothing.
          next_at timestamptz,
          -- Since when a job for it is on the queue; null: none.
          queued_at timestamptz,
          -- The fence: each worker that takes the asset gets the next turn, and writes only while the turn is its own.
          turn integer NOT NULL DEFAULT 0,
          turn_until timestamptz,
          -- What is in the bucket, as checked there.
          media jsonb,
          bytes bigint,
          record_key text,
          mirrored_at timestamptz,
          transcript_state text NOT NULL DEFAULT 'none' CHECK (transcript_state IN ('none', 'pending', 'mirrored', 'no_speech', 'gave_up')),
          transcript_keys jsonb,
          transcript_deadline timestamptz,
          thumbnail jsonb,
          thumbnail_state text NOT NULL DEFAULT 'none' CHECK (thumbnail_state IN ('none', 'pending', 'mirrored', 'gave_up')),
          -- Keys that another version of it has, or may have: removed once the record of this one is written.
          outdated text[] NOT NULL DEFAULT '{}',
          -- An upload in parts that is under way: what it takes to go on with it. Its parts are in upload_parts.
          upload jsonb,
          first_seen_at timestamptz NOT NULL DEFAULT now(),
          CHECK (state NOT IN ('pending', 'processing', 'transferring') OR next_at IS NOT NULL)
        )`.execute(db);
      await sql`
        CREATE TABLE upload_parts (
          asset_id text NOT NULL REFERENCES assets ON DELETE CASCADE,
          number integer NOT NULL,
          bytes bigint NOT NULL,
          etag text NOT NULL,
          crc32 text NOT NULL,
          PRIMARY KEY (asset_id, number)
        )`.execute(db);
      await sql`CREATE INDEX assets_due ON assets (connection_id, company_id, upload_date DESC NULLS LAST, id)
        WHERE next_at IS NOT NULL AND queued_at IS NULL`.execute(db);
      await sql`CREATE INDEX assets_queued ON assets (connection_id, queued_at) WHERE queued_at IS NOT NULL`.execute(
        db,
      );
      await sql`CREATE INDEX assets_mirrored ON assets (mirrored_at) WHERE mirrored_at IS NOT NULL`.execute(db);
      await sql`CREATE INDEX assets_by_company ON assets (company_id, id)`.execute(db);
      await sql`CREATE INDEX assets_by_connection ON assets (connection_id, company_id, state)`.execute(db);
      await sql`
        CREATE TABLE syncs (
          id text PRIMARY KEY,
          connection_id text NOT NULL REFERENCES connections,
          mode text NOT NULL CHECK (mode IN ('incremental', 'full')),
          scope jsonb NOT NULL DEFAULT '{}',
          status text NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
          -- Where a run that was interrupted goes on: companies done, company and cursor in hand, newest upload date seen.
          position jsonb NOT NULL DEFAULT '{}',
          pages integer NOT NULL DEFAULT 0,
          seen integer NOT NULL DEFAULT 0,
          new integer NOT NULL DEFAULT 0,
          changed integer NOT NULL DEFAULT 0,
          error text,
          requested_at timestamptz NOT NULL DEFAULT now(),
          started_at timestamptz,
          finished_at timestamptz
        )`.execute(db);
      await sql`CREATE INDEX syncs_by_connection ON syncs (connection_id, requested_at DESC)`.execute(db);
      // Over everything, one run waits, of whichever mode. By digest: a scope that names a thousand assets is longer than
      // an index entry may be.
      await sql`CREATE UNIQUE INDEX syncs_waiting
        ON syncs (connection_id, (CASE WHEN scope = '{}' THEN '' ELSE mode END), md5(scope::text))
        WHERE status = 'waiting'`.execute(db);
      await sql`CREATE INDEX syncs_open ON syncs (connection_id) WHERE status IN ('waiting', 'running')`.execute(db);
      // States of connect attempts that came back: none is accepted a second time.
      await sql`
        CREATE TABLE used_states (
          state text PRIMARY KEY,
          until timestamptz NOT NULL
        )`.execute(db);
      await sql`
        CREATE TABLE events (
          id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
          at timestamptz NOT NULL DEFAULT now(),
          kind text NOT NULL,
          connection_id text,
          asset_id text,
          data jsonb NOT NULL DEFAULT '{}'
        )`.execute(db);
      // Which bucket the records are about: at most one row.
      await sql`
        CREATE TABLE bucket (
          single boolean PRIMARY KEY DEFAULT true CHECK (single),
          id text NOT NULL
        )`.execute(db);
      await sql`CREATE INDEX events_by_connection ON events (connection_id, id)`.execute(db);
      await sql`CREATE INDEX events_by_asset ON events (asset_id, id) WHERE asset_id IS NOT NULL`.execute(db);
    },
  },
  '0002_store_proofs': {
    async up(db: Kysely<unknown>) {
      // What was found out about stores, so that not every process asks them again.
      await sql`
        CREATE TABLE store_proofs (
          place text PRIMARY KEY,
          proof text NOT NULL,
          found_at timestamptz NOT NULL DEFAULT now()
        )`.execute(db);
    },
  },
  '0003_verifications': {
    async up(db: Kysely<unknown>) {
      await sql`
        ALTER TABLE assets
          -- What was stored beside the media, by key: length, ETag and checksum.
          ADD COLUMN beside jsonb NOT NULL DEFAULT '{}',
          -- When the media's bytes were last held against their checksum.
          ADD COLUMN verified_at timestamptz`.execute(db);
      // In the order in which stores list: what is there is compared with what should be, a page of each at a time.
      await sql`CREATE INDEX assets_by_key ON assets ((media->>'key') COLLATE "C") WHERE media IS NOT NULL`.execute(db);
      await sql`CREATE INDEX assets_unmirrored ON assets (id) WHERE state NOT IN ('mirrored', 'gone')`.execute(db);
      await sql`
        CREATE TABLE verifications (
          id text PRIMARY KEY,
          -- Null: all of them.
          connection_id text REFERENCES connections,
          options jsonb NOT NULL DEFAULT '{}',
          status text NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
          -- Where a run that was interrupted goes on, and what it has counted until there.
          position jsonb NOT NULL DEFAULT '{}',
          counts jsonb NOT NULL DEFAULT '{}',
          error text,
          -- The lease of the one process that runs it.
          owner text,
          until timestamptz,
          requested_at timestamptz NOT NULL DEFAULT now(),
          started_at timestamptz,
          finished_at timestamptz
        )`.execute(db);
      await sql`CREATE INDEX verifications_open ON verifications (requested_at) WHERE status IN ('waiting', 'running')`.execute(
        db,
      );
      await sql`
        CREATE TABLE verification_lines (
          verification_id text NOT NULL REFERENCES verifications ON DELETE CASCADE,
          number bigint NOT NULL,
          mark text NOT NULL CHECK (mark IN ('=', '-', '+', '*', '!')),
          key text,
          asset_id text,
          -- Which of the asset's objects, and what is to be done about it.
          kind text,
          remedy text,
          text text,
          difference boolean NOT NULL,
          PRIMARY KEY (verification_id, number)
        )`.execute(db);
      await sql`CREATE INDEX verification_remedies ON verification_lines (verification_id, asset_id) WHERE remedy IS NOT NULL`.execute(
        db,
      );
      // One row a day. Whoever holds it writes the day's inventory.
      await sql`
        CREATE TABLE inventories (
          day date PRIMARY KEY,
          owner text,
          until timestamptz,
          -- How many assets were on their way when it was written: then it is written again.
          waiting bigint,
          written_at timestamptz
        )`.execute(db);
    },
  },
  '0004_transfers': {
    async up(db: Kysely<unknown>) {
      // Where something was, or may have been, begun in parts: written first, so that one whose id was never saved is found.
      await sql`
        CREATE TABLE upload_keys (
          key text PRIMARY KEY,
          asset_id text NOT NULL,
          begun_at timestamptz NOT NULL DEFAULT now()
        )`.execute(db);
      await sql`ALTER TABLE upload_parts ADD COLUMN stored_at timestamptz NOT NULL DEFAULT now()`.execute(db);
      await sql`CREATE INDEX assets_uploads ON assets (id) WHERE upload IS NOT NULL`.execute(db);
      // What one process at a time does now and then, and when it is due again.
      await sql`CREATE TABLE chores (name text PRIMARY KEY, due_at timestamptz NOT NULL)`.execute(db);
      // What operators change while processes run; it goes before their environment.
      await sql`CREATE TABLE settings (name text PRIMARY KEY, value jsonb NOT NULL)`.execute(db);
    },
  },
  '0005_reconcile': {
    async up(db: Kysely<unknown>) {
      await sql`ALTER TABLE syncs ADD COLUMN gone integer NOT NULL DEFAULT 0`.execute(db);
      // What a run over everything has listed so far, a page per row: what it lacks at its end may be gone.
      await sql`
        CREATE TABLE sightings (
          sync_id text NOT NULL REFERENCES syncs ON DELETE CASCADE,
          company_id text NOT NULL,
          ids text[] NOT NULL
        )`.execute(db);
      await sql`CREATE INDEX sightings_by_sync ON sightings (sync_id, company_id)`.execute(db);
      // For pruning: by age, and the last of each kind.
      await sql`CREATE INDEX events_by_age ON events (at)`.execute(db);
      await sql`CREATE INDEX events_last ON events (connection_id, kind, id) WHERE asset_id IS NULL`.execute(db);
    },
  },
  '0006_rebuild': {
    async up(db: Kysely<unknown>) {
      // Null: read from the bucket, and nobody who can read its company has connected since.
      await sql`ALTER TABLE assets ALTER COLUMN connection_id DROP NOT NULL`.execute(db);
      // The id that a bucket without one is given: at most one row.
      await sql`
        CREATE TABLE bucket_proposal (
          single boolean PRIMARY KEY DEFAULT true CHECK (single),
          id text NOT NULL
        )`.execute(db);
    },
  },
  '0007_pace': {
    async up(db: Kysely<unknown>) {
      await sql`ALTER TABLE connections ADD COLUMN pace jsonb`.execute(db);
    },
  },
  '0008_bucket': {
    async up(db: Kysely<unknown>) {
      // Whether the bucket is compared behind the run.
      await sql`ALTER TABLE syncs ADD COLUMN with_bucket boolean NOT NULL DEFAULT false`.execute(db);
      // Of those that nobody asked for by themselves, one waits per connection, and one for all.
      await sql`CREATE UNIQUE INDEX verifications_routine ON verifications (coalesce(connection_id, ''))
        WHERE status = 'waiting' AND options->'routine' = 'true'`.execute(db);
    },
  },
  '0009_operators': {
    async up(db: Kysely<unknown>) {
      // Ids are given out before transactions end: who follows events in the order of ids could miss one. In the order of
      // transactions, and behind all that are still open, nothing comes in between any more.
      await sql`ALTER TABLE events ADD COLUMN xact xid8 NOT NULL DEFAULT '0'`.execute(db);
      await sql`ALTER TABLE events ALTER COLUMN xact SET DEFAULT pg_current_xact_id()`.execute(db);
      await sql`CREATE INDEX events_in_order ON events (xact, id)`.execute(db);
      await sql`CREATE INDEX events_by_kind ON events (kind, id)`.execute(db);
      // By whatever statement, of whichever release.
      await sql`
        CREATE FUNCTION tell_of_events() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM pg_notify('asset_mirror_events', '');
          RETURN NULL;
        END $$`.execute(db);
      await sql`CREATE TRIGGER events_tell AFTER INSERT ON events EXECUTE FUNCTION tell_of_events()`.execute(db);
      await sql`CREATE INDEX syncs_by_time ON syncs (requested_at DESC, id DESC)`.execute(db);
      // Sessions that were ended by signing out before their time.
      await sql`
        CREATE TABLE ended_sessions (
          id text PRIMARY KEY,
          until timestamptz NOT NULL
        )`.execute(db);
    },
  },
  '0010_selection': {
    async up(db: Kysely<unknown>) {
      await sql`
        ALTER TABLE assets
          -- Which setting leaves it out; then nothing is due, although it is pending.
          ADD COLUMN left_out text,
          DROP CONSTRAINT assets_check,
          ADD CONSTRAINT assets_due_or_left_out
            CHECK (state NOT IN ('pending', 'processing', 'transferring') OR next_at IS NOT NULL OR left_out IS NOT NULL)`.execute(
        db,
      );
      await sql`CREATE INDEX assets_left_out ON assets (company_id, id) WHERE left_out IS NOT NULL`.execute(db);
      // Whether its assets are still to be held against changed settings.
      await sql`ALTER TABLE connections ADD COLUMN reselect boolean NOT NULL DEFAULT false`.execute(db);
      await sql`CREATE INDEX connections_reselect ON connections (id) WHERE reselect`.execute(db);
    },
  },
  '0011_correlation': {
    async up(db: Kysely<unknown>) {
      // The run that last saw something new in it: so what becomes of the asset can be followed from there.
      await sql`ALTER TABLE assets ADD COLUMN sync_id text`.execute(db);
      // The trace of the run (W3C Trace Context), for what follows from it.
      await sql`ALTER TABLE syncs ADD COLUMN traceparent text`.execute(db);
    },
  },
  '0012_counts': {
    async up(db: Kysely<unknown>) {
      // Counts of assets, and what has changed since these were added up: rows that are only ever added, for whoever updates
      // a count waits for everybody else who does. An empty connection is none.
      const columns = sql`
        connection_id text NOT NULL, company_id text NOT NULL, state text NOT NULL, left_out boolean NOT NULL,
        assets bigint NOT NULL, bytes bigint NOT NULL, due bigint NOT NULL, due_bytes bigint NOT NULL`;
      await sql`
        CREATE TABLE asset_counts (${columns}, PRIMARY KEY (connection_id, company_id, state, left_out))`.execute(db);
      // Emptied every few seconds: what is dead in it must not pile up.
      await sql`CREATE TABLE asset_count_changes (${columns})
        WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)`.execute(db);
      const facts = (sign: string, rows: string) =>
        `SELECT ${sign}1 AS n, coalesce(connection_id, '') AS connection_id, company_id, state, left_out IS NOT NULL AS left_out,
           coalesce(bytes, 0) AS bytes, next_at IS NOT NULL AS due, coalesce(size, 0) AS size FROM ${rows}`;
      const sums = (of: string) => `
        SELECT connection_id, company_id, state, left_out, sum(n), sum(n * bytes),
          coalesce(sum(n) FILTER (WHERE due), 0), coalesce(sum(n * size) FILTER (WHERE due), 0)
        FROM (${of}) AS facts GROUP BY connection_id, company_id, state, left_out`;
      for (const [event, tables, of] of [
        ['INSERT', 'NEW TABLE AS after', facts('', 'after')],
        ['DELETE', 'OLD TABLE AS before', facts('-', 'before')],
        ['UPDATE', 'OLD TABLE AS before NEW TABLE AS after', `${facts('', 'after')} UNION ALL ${facts('-', 'before')}`],
      ] as const) {
        const name = `count_assets_${event.toLowerCase()}`;
        await sql`
          CREATE FUNCTION ${sql.raw(name)}() RETURNS trigger LANGUAGE plpgsql AS ${sql.raw(`$$
          BEGIN
            INSERT INTO asset_count_changes ${sums(of)}
            HAVING sum(n) <> 0 OR sum(n * bytes) <> 0 OR coalesce(sum(n) FILTER (WHERE due), 0) <> 0
              OR coalesce(sum(n * size) FILTER (WHERE due), 0) <> 0;
            RETURN NULL;
          END $$`)}`.execute(db);
        await sql`
          CREATE TRIGGER ${sql.raw(name)} AFTER ${sql.raw(event)} ON assets REFERENCING ${sql.raw(tables)}
          FOR EACH STATEMENT EXECUTE FUNCTION ${sql.raw(name)}()`.execute(db);
      }
      // Nobody writes assets until this is committed.
      await sql`INSERT INTO asset_counts ${sql.raw(sums(facts('', 'assets')))}`.execute(db);
      // Pages in the order of ids, of whatever people look for. What workers, who write assets all the time, never change is in
      // a table of its own, whose indexes they need not write.
      await sql`CREATE INDEX assets_in_state ON assets (state, id)`.execute(db);
      await sql`CREATE INDEX assets_of_connection ON assets (connection_id, id)`.execute(db);
      await sql`CREATE INDEX connections_in_order ON connections (connected_at, id)`.execute(db);
      await sql`
        CREATE TABLE asset_facets (id text PRIMARY KEY, name text, project_id text, asset_type text)`.execute(db);
      await sql`INSERT INTO asset_facets SELECT id, name, project_id, asset_type FROM assets`.execute(db);
      await sql`CREATE INDEX asset_facets_project ON asset_facets (project_id, id) WHERE project_id IS NOT NULL`.execute(
        db,
      );
      await sql`CREATE INDEX asset_facets_type ON asset_facets (asset_type, id) WHERE asset_type IS NOT NULL`.execute(
        db,
      );
      for (const [event, each, action] of [
        [
          'INSERT',
          'REFERENCING NEW TABLE AS after FOR EACH STATEMENT',
          'INSERT INTO asset_facets SELECT id, name, project_id, asset_type FROM after ON CONFLICT DO NOTHING',
        ],
        [
          'UPDATE OF name, project_id, asset_type',
          'FOR EACH ROW WHEN ((old.name, old.project_id, old.asset_type) IS DISTINCT FROM (new.name, new.project_id, new.asset_type))',
          `UPDATE asset_facets SET name = new.name, project_id = new.project_id, asset_type = new.asset_type
             WHERE id = new.id`,
        ],
        ['DELETE', 'FOR EACH ROW', 'DELETE FROM asset_facets WHERE id = old.id'],
      ] as const) {
        const name = `facet_assets_${event.slice(0, 6).toLowerCase()}`;
        await sql`
          CREATE FUNCTION ${sql.raw(name)}() RETURNS trigger LANGUAGE plpgsql AS ${sql.raw(`$$
          BEGIN
            ${action};
            RETURN NULL;
          END $$`)}`.execute(db);
        await sql`
          CREATE TRIGGER ${sql.raw(name)} AFTER ${sql.raw(event)} ON assets
          ${sql.raw(each)} EXECUTE FUNCTION ${sql.raw(name)}()`.execute(db);
      }
      // Where the extension is not, or may not be made, names are found all the same, by reading them all.
      await sql`
        DO $$ BEGIN
          CREATE EXTENSION IF NOT EXISTS pg_trgm;
          CREATE INDEX asset_facets_name ON asset_facets USING gin (name gin_trgm_ops);
        EXCEPTION WHEN OTHERS THEN
          RAISE NOTICE 'pg_trgm cannot be used: %', SQLERRM;
        END $$`.execute(db);
      // What was put off after an error.
      await sql`CREATE INDEX assets_put_off ON assets (next_at) WHERE state = 'pending' AND reason IS NOT NULL`.execute(
        db,
      );
    },
  },
  '0013_happenings': {
    async up(db: Kysely<unknown>) {
      // What happened to each asset, for people. Never changed, only added to and forgotten.
      await sql`
        CREATE TABLE happenings (
          id bigint GENERATED ALWAYS AS IDENTITY,
          asset_id text NOT NULL,
          at timestamptz NOT NULL DEFAULT now(),
          kind text NOT NULL,
          sync_id text,
          data jsonb NOT NULL DEFAULT '{}'
        )`.execute(db);
      await sql`CREATE INDEX happenings_by_asset ON happenings (asset_id, id)`.execute(db);
      // They lie in the order of time: where the old ones end is found by blocks.
      await sql`CREATE INDEX happenings_by_age ON happenings USING brin (at)`.execute(db);
    },
  },
  '0014_webhooks': {
    async up(db: Kysely<unknown>) {
      // Up to where events have become deliveries, in the order in which they are followed: at most one row.
      await sql`
        CREATE TABLE webhook_place (
          single boolean PRIMARY KEY DEFAULT true CHECK (single),
          xact xid8 NOT NULL,
          id bigint NOT NULL
        )`.execute(db);
      // What an endpoint is still to be told.
      await sql`
        CREATE TABLE webhook_deliveries (
          id text PRIMARY KEY,
          kind text NOT NULL,
          at timestamptz NOT NULL,
          connection_id text,
          asset_id text,
          data jsonb NOT NULL,
          attempts integer NOT NULL DEFAULT 0,
          next_at timestamptz NOT NULL,
          error text
        )`.execute(db);
      await sql`CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at)`.execute(db);
      await sql`CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (at)`.execute(db);
      // For the last run before: whether a failure is the first of a row.
      await sql`CREATE INDEX syncs_finished ON syncs (connection_id, finished_at DESC) WHERE finished_at IS NOT NULL`.execute(
        db,
      );
    },
  },
  '0015_looks': {
    async up(db: Kysely<unknown>) {
      // What is mirrored and looked at again soon is found without reading all that waits to be mirrored.
      await sql`
        CREATE INDEX assets_looks ON assets (next_at) WHERE state = 'mirrored' AND next_at IS NOT NULL`.execute(db);
    },
  },
  '0016_due': {
    async up(db: Kysely<unknown>) {
      // Its lock at once: who reads while indexes are made, and then writes, would wait in a circle with us.
      await sql`LOCK TABLE assets IN ACCESS EXCLUSIVE MODE`.execute(db);
      // Each turn writes a row three times, and each time all indexes that have it. So there are few: those of all rows, and
      // those of the few for which something is to be done.
      for (const index of ['due', 'looks', 'put_off', 'in_state', 'unmirrored']) {
        await sql`DROP INDEX ${sql.table(`assets_${index}`)}`.execute(db);
      }
      await sql`CREATE INDEX assets_media_due ON assets (connection_id, company_id, upload_date DESC NULLS LAST, id)
        WHERE state <> 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL`.execute(db);
      await sql`CREATE INDEX assets_looks_due ON assets (connection_id, company_id, next_at)
        WHERE state = 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL`.execute(db);
      // What comes next, whosever it is.
      await sql`CREATE INDEX assets_expected ON assets (state, next_at)
        WHERE next_at IS NOT NULL AND (state IN ('processing', 'mirrored') OR reason IS NOT NULL)`.execute(db);
      // In the order of ids, for people and for comparing: in the end nearly all assets are mirrored.
      await sql`CREATE INDEX assets_not_mirrored ON assets (state, id) WHERE state <> 'mirrored'`.execute(db);
      // Room for what changes often and is in no index, as turns that are kept and bytes that are read again.
      await sql`ALTER TABLE assets SET (fillfactor = 85)`.execute(db);
    },
  },
  '0017_readers': {
    async up(db: Kysely<unknown>) {
      // Who else reads a company is asked by each sync, of however many connections there are.
      await sql`CREATE INDEX access_by_company ON access (company_id)`.execute(db);
    },
  },
  '0018_bucket_behind_run': {
    async up(db: Kysely<unknown>) {
      await sql`ALTER TABLE syncs ADD COLUMN verification_id text`.execute(db);
    },
  },
  '0019_settled': {
    async up(db: Kysely<unknown>) {
      await sql`ALTER TABLE assets ADD COLUMN settled_at timestamptz`.execute(db);
      // Whoever settles it: a worker, of an older release, too, a listing, a rebuild.
      await sql`
        CREATE FUNCTION settle_asset() RETURNS trigger LANGUAGE plpgsql AS ${sql.raw(`$$
        BEGIN
          new.settled_at = clock_timestamp();
          RETURN new;
        END $$`)}`.execute(db);
      await sql`
        CREATE TRIGGER settle_assets_insert BEFORE INSERT ON assets
        FOR EACH ROW WHEN (new.state IN ('mirrored', 'gone')) EXECUTE FUNCTION settle_asset()`.execute(db);
      await sql`
        CREATE TRIGGER settle_assets_update BEFORE UPDATE OF state ON assets
        FOR EACH ROW WHEN (new.state IN ('mirrored', 'gone') AND old.state NOT IN ('mirrored', 'gone'))
        EXECUTE FUNCTION settle_asset()`.execute(db);
    },
  },
};

/** Migrations that the schema does not have yet. */
// biome-ignore lint/suspicious/noExplicitAny: migrations know no schema
export async function pendingMigrations(db: Kysely<any>): Promise<string[]> {
  const all = await new Migrator({ db, provider: { getMigrations: async () => migrations } }).getMigrations();
  return all.filter(({ executedAt }) => !executedAt).map(({ name }) => name);
}

/** Kysely's own number for it, so that releases that leave the lock to Kysely keep out of the way, too. */
const migrationLock = '3853314791062309107';

/** Kysely's lock belongs to a session, and a pooler may change that between two statements; ours belongs to a transaction. */
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
 * Brings the schema up to date. Runs under a lock in the database, so any number of processes may start at once; where there
 * is nothing to do, none is taken. A schema of a newer release is left as it is: while that is rolled out, or when it is
 * taken back, this one goes on beside it. `db` is of the dialect above.
 * @throws Error when a newer release has taken away what this one needs
 */
// biome-ignore lint/suspicious/noExplicitAny: migrations know no schema
export async function migrate(db: Kysely<any>, log: Log, known = migrations): Promise<void> {
  let { newer, behind } = await compare(db, known);
  if (behind) {
    await db.transaction().execute(async (tx) => {
      await sql`SELECT pg_advisory_xact_lock(${sql.raw(migrationLock)})`.execute(tx);
      ({ newer, behind } = await compare(tx, known));
      if (behind) await upgrade(tx, { ...known, ...Object.fromEntries(newer.map((name) => [name, done])) });
    });
  }
  if (newer.length > 0)
    log.warn({ migrations: newer }, 'the database is of a newer release; this one goes on beside it');
}

/** What is not known was done by a newer release. */
const done: Migration = { async up() {} };

// biome-ignore lint/suspicious/noExplicitAny: migrations know no schema
async function upgrade(tx: Kysely<any>, all: Record<string, Migration>): Promise<void> {
  const migrator = new Migrator({ db: tx, provider: { getMigrations: async () => all } });
  const { error, results } = await migrator.migrateToLatest();
  if (!error) return;
  const failed = results?.find((result) => result.status === 'Error')?.migrationName ?? 'the schema';
  throw new Error(`bring the database up to date (${failed})`, { cause: error });
}

/** What the database has, and `known` has not; and whether that has something which is not there yet. */
async function compare(
  // biome-ignore lint/suspicious/noExplicitAny: migrations know no schema
  db: Kysely<any>,
  known: Record<string, Migration>,
): Promise<{ newer: string[]; behind: boolean }> {
  const there = await doneMigrations(db).catch((cause) => {
    throw new Error('bring the database up to date (the schema)', { cause });
  });
  const newer = there.filter((name) => !(name in known));
  const contract = newer.find((name) => /^\d+_contract_/.test(name));
  if (contract !== undefined) {
    throw new Error(
      `the database is of a newer release (${contract}), and this one cannot work with it any more; start that release`,
    );
  }
  return { newer, behind: Object.keys(known).some((name) => !there.includes(name)) };
}

// biome-ignore lint/suspicious/noExplicitAny: migrations know no schema
async function doneMigrations(db: Kysely<any>): Promise<string[]> {
  const { rows: there } = await sql<{ name: string | null }>`SELECT to_regclass('kysely_migration') AS name`.execute(
    db,
  );
  if (!there[0]?.name) return [];
  const { rows } = await sql<{ name: string }>`SELECT name FROM kysely_migration ORDER BY name`.execute(db);
  return rows.map(({ name }) => name);
}
