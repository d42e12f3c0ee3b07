import { sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import { changes } from './change-schema.ts';

const connections = `
  CREATE TABLE connections (
    id text PRIMARY KEY,
    user_id text NOT NULL UNIQUE,
    user_name text NOT NULL,
    user_email text NOT NULL,
    status text NOT NULL CHECK (status IN ('active', 'paused', 'disconnected')),
    -- Sealed pair of access and refresh token. The version counts the pairs; each write names the version that it replaces.
    tokens text,
    token_version integer NOT NULL DEFAULT 1,
    access_expires_at timestamptz,
    -- The lease of the one process that may refresh.
    refresh_owner text,
    refresh_until timestamptz,
    -- When a refresh was sent that got no answer: the library may have rotated the token.
    refresh_unanswered_at timestamptz,
    -- The lease of the one sync that may run.
    sync_owner text,
    sync_until timestamptz,
    delayed_until timestamptz,
    delayed_reason jsonb,
    adaptive_limit jsonb NOT NULL DEFAULT '{"limit": 16, "limitAtObjection": null, "strikes": 0, "slowedAt": 0}',
    settings jsonb NOT NULL DEFAULT '{}',
    tags jsonb NOT NULL DEFAULT '{}',
    -- Requests to apply the filters to all assets are numbered: the last one that was made, and the last one that was done.
    filters_requested integer NOT NULL DEFAULT 0,
    filters_applied integer NOT NULL DEFAULT 0,
    connected_at timestamptz NOT NULL DEFAULT now(),
    last_sync_at timestamptz,
    news_at timestamptz,
    -- When the last scheduled sync, and the last scheduled full one, were requested.
    scheduled_sync_at timestamptz NOT NULL DEFAULT now(),
    scheduled_full_at timestamptz NOT NULL DEFAULT now(),
    last_error jsonb,
    -- When an operator last disconnected it: earlier connect links no longer work.
    links_since timestamptz
  );
  CREATE INDEX connections_in_order ON connections (connected_at, id);
  CREATE INDEX connections_filters_pending ON connections (id) WHERE filters_applied < filters_requested;

  CREATE TABLE companies (
    id text PRIMARY KEY,
    name text NOT NULL,
    -- An operator has accepted the removal of everything that was due then.
    removal_accepted_before timestamptz
  );

  -- Which connection can read which company. Each pair has its high-water mark: users may see different assets of a company.
  CREATE TABLE access (
    connection_id text NOT NULL REFERENCES connections,
    company_id text NOT NULL REFERENCES companies,
    high_water_mark bigint,
    -- Changes that are held until an operator accepts them, by kind: how many, of how many, a sample, and since when.
    held jsonb NOT NULL DEFAULT '{}',
    lost_at timestamptz,
    -- When a full sync last listed the company to its end.
    listed_at timestamptz,
    PRIMARY KEY (connection_id, company_id)
  );
  CREATE INDEX access_by_company ON access (company_id);

  -- Used states of connect attempts, which are not accepted again.
  CREATE TABLE used_states (
    state text PRIMARY KEY,
    until timestamptz NOT NULL
  );

  -- Grants of users who have consented, until the library has named the users.
  CREATE TABLE consents (
    id text PRIMARY KEY,
    tokens text NOT NULL,
    connection_id text,
    -- The tags of the link; null: it has none.
    tags jsonb,
    link_made_at timestamptz NOT NULL,
    access_expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    next_at timestamptz NOT NULL
  );`;

const assets = `
  CREATE TABLE assets (
    id text PRIMARY KEY,
    -- Null: restored from the bucket, and no connection can read its company yet.
    connection_id text REFERENCES connections,
    company_id text NOT NULL REFERENCES companies,
    project_id text,
    asset_type text,
    name text,
    size bigint,
    upload_date bigint,
    -- The asset as the last listing described it, and as it last described itself; both without signed links.
    listed jsonb NOT NULL,
    detail jsonb,
    -- How often a listing has changed the row: a worker that began before must check again.
    revision integer NOT NULL DEFAULT 0,
    -- The last sync that found it new or changed.
    sync_id text,
    state text NOT NULL CHECK (state IN ('pending', 'processing', 'transferring', 'mirrored', 'unavailable', 'failed', 'gone')),
    -- A code with data.
    reason jsonb,
    -- A filter skips it: then nothing is due, although it is pending.
    skipped boolean NOT NULL
      GENERATED ALWAYS AS (state = 'pending' AND coalesce(reason->>'code' = 'skipped_by_filter', false)) STORED,
    -- Failed attempts in a row.
    attempts integer NOT NULL DEFAULT 0,
    -- Follow-up checks so far that found a transcript or thumbnail not ready.
    follow_ups integer NOT NULL DEFAULT 0,
    -- How often in a row it was postponed without spending an attempt.
    waits integer NOT NULL DEFAULT 0,
    processing_since timestamptz,
    -- When something is due for it next; null: nothing is.
    next_at timestamptz,
    -- Since when it has a job on the queue; null: it has none.
    queued_at timestamptz,
    -- The fencing token: each worker that takes the asset gets the next number, and writes only while it is current.
    lease integer NOT NULL DEFAULT 0,
    lease_until timestamptz,
    -- What is in the bucket, as checked there.
    media jsonb,
    bytes bigint,
    record_key text,
    -- The sidecars in the bucket, by key: length, ETag and checksum.
    sidecar_files jsonb NOT NULL DEFAULT '{}',
    mirrored_at timestamptz,
    -- Under which time a version is being kept, until it is in asset_versions.
    keeping_at timestamptz,
    -- When the media's bytes were last compared with their checksum.
    verified_at timestamptz,
    -- When they were last found not to be comparable: archived, or damaged and gone from the library.
    unverifiable_at timestamptz,
    -- Until when the media is locked, as checked there; null: not checked since it was stored.
    retained_until timestamptz,
    gone_at timestamptz,
    settled_at timestamptz,
    transcript_state text NOT NULL DEFAULT 'none' CHECK (transcript_state IN ('none', 'pending', 'mirrored', 'no_speech', 'gave_up')),
    transcript_keys jsonb,
    transcript_deadline timestamptz,
    thumbnail jsonb,
    thumbnail_state text NOT NULL DEFAULT 'none' CHECK (thumbnail_state IN ('none', 'pending', 'mirrored', 'gave_up')),
    -- Keys that another version of it may have: deleted once the record of this one is written.
    superseded text[] NOT NULL DEFAULT '{}',
    -- A key of its media in each folder in which it was before: there may be versions of objects. And keys of sidecars that a
    -- removal has begun to remove.
    earlier_keys text[] NOT NULL DEFAULT '{}',
    -- Readers of the feed have it: written by a trigger (change-schema.ts).
    in_copy boolean NOT NULL DEFAULT false,
    -- An upload in parts that can be resumed. Its parts are in upload_parts.
    upload jsonb,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT assets_due_or_skipped
      CHECK (state NOT IN ('pending', 'processing', 'transferring') OR (next_at IS NOT NULL) <> skipped)
  );

  -- Each change of state writes all indexes that contain the row. So few indexes are over all rows, and others only over the
  -- rows for which something is due.
  CREATE INDEX assets_by_company ON assets (company_id, id);
  CREATE INDEX assets_by_connection ON assets (connection_id, company_id, state);
  CREATE INDEX assets_of_connection ON assets (connection_id, id);
  CREATE INDEX assets_mirrored ON assets (mirrored_at) WHERE mirrored_at IS NOT NULL;
  -- Sorted as object stores list keys, so that the bucket is compared page by page.
  CREATE INDEX assets_by_key ON assets ((media->>'key') COLLATE "C") WHERE media IS NOT NULL;
  CREATE INDEX assets_queued ON assets (connection_id, queued_at) WHERE queued_at IS NOT NULL;
  CREATE INDEX assets_media_due ON assets (connection_id, company_id, upload_date DESC NULLS LAST, id)
    WHERE state <> 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL;
  CREATE INDEX assets_follow_ups_due ON assets (connection_id, company_id, next_at)
    WHERE state = 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL;
  CREATE INDEX assets_expected ON assets (state, next_at)
    WHERE next_at IS NOT NULL AND (state IN ('processing', 'mirrored') OR reason IS NOT NULL);
  CREATE INDEX assets_not_mirrored ON assets (state, id) WHERE state <> 'mirrored';
  CREATE INDEX assets_skipped ON assets (company_id, id) WHERE skipped;
  CREATE INDEX assets_gone ON assets (gone_at, id) WHERE state = 'gone';
  -- The scrub reads the longest unverified file next.
  CREATE INDEX assets_to_verify ON assets ((coalesce(verified_at, mirrored_at)))
    WHERE state IN ('mirrored', 'gone') AND media IS NOT NULL AND unverifiable_at IS NULL;
  CREATE INDEX assets_unverifiable ON assets (unverifiable_at)
    WHERE state IN ('mirrored', 'gone') AND media IS NOT NULL AND unverifiable_at IS NOT NULL;
  CREATE INDEX assets_uploads ON assets (id) WHERE upload IS NOT NULL;

  -- Written by any statement that makes an asset mirrored or gone: of a worker, a listing or a rebuild.
  CREATE FUNCTION settle_asset() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    new.settled_at = clock_timestamp();
    RETURN new;
  END $$;
  CREATE TRIGGER settle_assets_insert BEFORE INSERT ON assets
    FOR EACH ROW WHEN (new.state IN ('mirrored', 'gone')) EXECUTE FUNCTION settle_asset();
  CREATE TRIGGER settle_assets_update BEFORE UPDATE OF state ON assets
    FOR EACH ROW WHEN (new.state IN ('mirrored', 'gone') AND old.state NOT IN ('mirrored', 'gone'))
    EXECUTE FUNCTION settle_asset();

  CREATE FUNCTION date_gone_asset() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    new.gone_at = CASE new.state WHEN 'gone' THEN clock_timestamp() END;
    RETURN new;
  END $$;
  CREATE TRIGGER date_gone_assets BEFORE UPDATE OF state ON assets
    FOR EACH ROW WHEN ((new.state = 'gone') <> (old.state = 'gone')) EXECUTE FUNCTION date_gone_asset();

  CREATE FUNCTION folder_of(media jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(media->>'key', '[^/]*$', '')
  $$;
  CREATE FUNCTION remember_folder() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF NOT EXISTS (
      SELECT FROM unnest(new.earlier_keys) AS key WHERE folder_of(jsonb_build_object('key', key)) = folder_of(old.media))
    THEN new.earlier_keys = new.earlier_keys || (old.media->>'key'); END IF;
    RETURN new;
  END $$;
  CREATE TRIGGER remember_folders BEFORE UPDATE OF media ON assets
    FOR EACH ROW WHEN (folder_of(old.media) <> folder_of(new.media)) EXECUTE FUNCTION remember_folder();

  CREATE INDEX assets_keeping ON assets (keeping_at) WHERE keeping_at IS NOT NULL;

  -- Superseded files that are kept in the bucket. No foreign key: a version may outlive the row of its asset.
  CREATE TABLE asset_versions (
    asset_id text NOT NULL,
    replaced_at timestamptz NOT NULL,
    company_id text NOT NULL,
    project_id text,
    mirrored_at timestamptz NOT NULL,
    -- Why it was superseded: a code with data.
    reason jsonb NOT NULL,
    media jsonb NOT NULL,
    -- Its objects: their keys before, and where they are now.
    files jsonb NOT NULL,
    bytes bigint NOT NULL,
    -- When a removal that failed is tried again.
    retry_at timestamptz,
    -- When its removal last began.
    removing_at timestamptz,
    -- Until when its media is locked, as checked there; null: not checked.
    retained_until timestamptz,
    PRIMARY KEY (asset_id, replaced_at)
  );
  CREATE INDEX asset_versions_by_age ON asset_versions (replaced_at) INCLUDE (bytes);

  CREATE TABLE upload_parts (
    asset_id text NOT NULL REFERENCES assets ON DELETE CASCADE,
    number integer NOT NULL,
    bytes bigint NOT NULL,
    etag text NOT NULL,
    crc32 text NOT NULL,
    -- The SHA-256 of each of its blocks; null: not computed.
    blocks text[],
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (asset_id, number)
  );

  -- Mirrored assets for which the library has another file. Released: it may replace the stored one.
  CREATE TABLE replacements (
    asset_id text PRIMARY KEY REFERENCES assets ON DELETE CASCADE,
    company_id text NOT NULL,
    -- The asset as it was listed, and by which sync; null: only a follow-up check has found it.
    listed jsonb,
    sync_id text,
    found_at timestamptz NOT NULL DEFAULT now(),
    released_at timestamptz
  );
  CREATE INDEX replacements_by_company ON replacements (company_id, asset_id);

  -- Keys at which an upload in parts may have begun. Written first, to find uploads whose id was never saved.
  CREATE TABLE upload_keys (
    key text PRIMARY KEY,
    asset_id text NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT now()
  );

  -- The history of each asset. Rows are only added and pruned, in the order of time, so a small index is enough.
  CREATE TABLE asset_history (
    id bigint GENERATED ALWAYS AS IDENTITY,
    asset_id text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    sync_id text,
    data jsonb NOT NULL DEFAULT '{}'
  );
  CREATE INDEX asset_history_by_asset ON asset_history (asset_id, id);
  CREATE INDEX asset_history_by_age ON asset_history USING brin (at);`;

/** The columns for search, in a table that workers do not write, so that its indexes cost them nothing. */
const facets = `
  CREATE TABLE asset_facets (
    id text PRIMARY KEY,
    -- In lower case, and 300 characters at most: an index entry of 2,704 bytes also has the id.
    name text,
    project_id text,
    asset_type text,
    upload_date bigint,
    size bigint,
    mime_type text,
    tags text[]
  );
  CREATE INDEX asset_facets_project ON asset_facets (project_id, id) WHERE project_id IS NOT NULL;
  CREATE INDEX asset_facets_type ON asset_facets (asset_type, id) WHERE asset_type IS NOT NULL;
  CREATE INDEX asset_facets_mime_type ON asset_facets (mime_type text_pattern_ops) WHERE mime_type IS NOT NULL;
  CREATE INDEX asset_facets_tags ON asset_facets USING gin (tags) WHERE tags IS NOT NULL;
  -- With everything that a search by name reads, so that it skips other names without their rows.
  CREATE INDEX asset_facets_by_name ON asset_facets ((left(coalesce(name, ''), 100) COLLATE "C"), id) INCLUDE (name);
  CREATE INDEX asset_facets_by_date ON asset_facets ((coalesce(upload_date, 0)));
  CREATE INDEX asset_facets_by_size ON asset_facets ((coalesce(size, 0)));
  -- Without the extension, a search by name reads all names.
  DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX asset_facets_name ON asset_facets USING gin (name gin_trgm_ops);
  EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'pg_trgm cannot be used: %', SQLERRM;
  END $$;

  -- Longer values would not fit into an index.
  CREATE FUNCTION asset_tags(listed jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(left(tag, 200)) FROM jsonb_array_elements_text(
      CASE jsonb_typeof(listed->'tags') WHEN 'array' THEN listed->'tags' ELSE '[]' END) AS tag
    WHERE tag IS NOT NULL
  $$;
  CREATE FUNCTION facet_assets_insert() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO asset_facets
    SELECT id, left(lower(name), 300), project_id, asset_type, upload_date, size, left(listed->>'mimeType', 200),
      asset_tags(listed)
    FROM after ON CONFLICT DO NOTHING;
    RETURN NULL;
  END $$;
  CREATE TRIGGER facet_assets_insert AFTER INSERT ON assets REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION facet_assets_insert();
  CREATE FUNCTION facet_assets_update() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    UPDATE asset_facets SET name = left(lower(new.name), 300), project_id = new.project_id, asset_type = new.asset_type,
      upload_date = new.upload_date, size = new.size, mime_type = left(new.listed->>'mimeType', 200),
      tags = asset_tags(new.listed)
    WHERE id = new.id;
    RETURN NULL;
  END $$;
  CREATE TRIGGER facet_assets_update AFTER UPDATE OF name, project_id, asset_type, upload_date, size, listed ON assets
    FOR EACH ROW WHEN ((old.name, old.project_id, old.asset_type, old.upload_date, old.size, old.listed)
      IS DISTINCT FROM (new.name, new.project_id, new.asset_type, new.upload_date, new.size, new.listed))
    EXECUTE FUNCTION facet_assets_update();
  CREATE FUNCTION facet_assets_delete() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    DELETE FROM asset_facets WHERE id = old.id;
    RETURN NULL;
  END $$;
  CREATE TRIGGER facet_assets_delete AFTER DELETE ON assets FOR EACH ROW EXECUTE FUNCTION facet_assets_delete();`;

/**
 * The words of mirrored transcripts, for search. A row of `transcripts` goes when its transcript is no longer valid, and its
 * passages with it. One of a new transcript has another number.
 */
const transcripts = `
  CREATE TABLE transcripts (
    asset_id text PRIMARY KEY REFERENCES assets ON DELETE CASCADE,
    number bigint GENERATED ALWAYS AS IDENTITY,
    -- When it is to be read for search; null: it was.
    due_at timestamptz DEFAULT now(),
    -- The text search configuration of its passages; null: it has none.
    language text
  );
  CREATE INDEX transcripts_due ON transcripts (due_at) WHERE due_at IS NOT NULL;
  CREATE INDEX transcripts_language ON transcripts (language) WHERE language IS NOT NULL;

  -- About a minute of speech each. It ends with the beginning of the next one: a phrase may begin in one and end in the other.
  CREATE TABLE transcript_passages (
    asset_id text NOT NULL REFERENCES transcripts ON DELETE CASCADE,
    number integer NOT NULL,
    language text NOT NULL,
    -- Its lines, and when each starts, in ms.
    starts integer[] NOT NULL,
    lines text[] NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (asset_id, number)
  );
  -- Statistics would keep samples of erased words.
  ALTER TABLE transcript_passages ALTER lines SET STATISTICS 0, ALTER words SET STATISTICS 0;
  -- Without a list of pending entries, which each search would read.
  CREATE INDEX transcript_passages_words ON transcript_passages USING gin (words) WITH (fastupdate = off);

  CREATE FUNCTION track_transcript() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    DELETE FROM transcripts WHERE asset_id = new.id;
    IF new.transcript_state = 'mirrored' AND new.transcript_keys IS NOT NULL THEN
      INSERT INTO transcripts (asset_id) VALUES (new.id);
    END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER track_transcripts_insert AFTER INSERT ON assets
    FOR EACH ROW WHEN (new.transcript_state = 'mirrored') EXECUTE FUNCTION track_transcript();
  CREATE TRIGGER track_transcripts_update AFTER UPDATE OF transcript_state, transcript_keys ON assets
    FOR EACH ROW WHEN ((old.transcript_state, old.transcript_keys) IS DISTINCT FROM (new.transcript_state, new.transcript_keys))
    EXECUTE FUNCTION track_transcript();

  -- Assets in which this was said. A search only for what was not said finds nothing. Without statistics, the planner must not
  -- choose to read all words.
  CREATE FUNCTION assets_that_say(query text) RETURNS SETOF text LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
  DECLARE
    spoken text := (SELECT min(language) FROM transcripts);
    wanted tsquery;
  BEGIN
    WHILE spoken IS NOT NULL LOOP
      wanted := websearch_to_tsquery(spoken::regconfig, query);
      IF querytree(wanted) NOT IN ('', 'T') THEN
        RETURN QUERY SELECT DISTINCT asset_id FROM transcript_passages WHERE words @@ wanted AND language = spoken;
      END IF;
      spoken := (SELECT min(language) FROM transcripts WHERE language > spoken);
    END LOOP;
  END $$;`;

/**
 * Counts of assets, and changes that are not added up yet. Changes are only inserted: updates of one count would wait for each
 * other. An empty connection means none.
 */
function counts(): string {
  const columns = `
    connection_id text NOT NULL, company_id text NOT NULL, state text NOT NULL, skipped boolean NOT NULL,
    assets bigint NOT NULL, bytes bigint NOT NULL, due bigint NOT NULL, due_bytes bigint NOT NULL`;
  const trigger = (event: string, tables: string, changes: string) => `
    CREATE FUNCTION count_assets_${event}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO asset_count_changes
      SELECT connection_id, company_id, state, skipped, sum(n), sum(n * bytes),
        coalesce(sum(n) FILTER (WHERE due), 0), coalesce(sum(n * size) FILTER (WHERE due), 0)
      FROM (${changes}) AS changes GROUP BY connection_id, company_id, state, skipped
      HAVING sum(n) <> 0 OR sum(n * bytes) <> 0 OR coalesce(sum(n) FILTER (WHERE due), 0) <> 0
        OR coalesce(sum(n * size) FILTER (WHERE due), 0) <> 0;
      RETURN NULL;
    END $$;
    CREATE TRIGGER count_assets_${event} AFTER ${event} ON assets REFERENCING ${tables}
      FOR EACH STATEMENT EXECUTE FUNCTION count_assets_${event}();`;
  const change = (n: number, rows: string) => `
    SELECT ${n} AS n, coalesce(connection_id, '') AS connection_id, company_id, state, skipped,
      coalesce(bytes, 0) AS bytes, next_at IS NOT NULL AS due, coalesce(size, 0) AS size FROM ${rows}`;
  const [added, removed] = [change(1, 'after'), change(-1, 'before')];
  return `
    CREATE TABLE asset_counts (${columns}, PRIMARY KEY (connection_id, company_id, state, skipped));
    -- Emptied every few seconds: dead rows must not pile up.
    CREATE TABLE asset_count_changes (${columns})
      WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
    ${trigger('insert', 'NEW TABLE AS after', added)}
    ${trigger('delete', 'OLD TABLE AS before', removed)}
    ${trigger('update', 'OLD TABLE AS before NEW TABLE AS after', `${added} UNION ALL ${removed}`)}`;
}

const syncs = `
  CREATE TABLE syncs (
    id text PRIMARY KEY,
    connection_id text NOT NULL REFERENCES connections,
    mode text NOT NULL CHECK (mode IN ('incremental', 'full')),
    scope jsonb NOT NULL DEFAULT '{}',
    status text NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
    -- Where an interrupted sync continues: the position in each company, and the completed ones.
    position jsonb NOT NULL DEFAULT '{}',
    pages integer NOT NULL DEFAULT 0,
    seen integer NOT NULL DEFAULT 0,
    new integer NOT NULL DEFAULT 0,
    changed integer NOT NULL DEFAULT 0,
    gone integer NOT NULL DEFAULT 0,
    -- What it could not do: a code with data.
    error jsonb,
    -- Which companies it has held.
    held jsonb,
    -- Whether a scheduled verification follows, and which.
    with_bucket boolean NOT NULL DEFAULT false,
    verification_id text,
    -- The trace of the sync (W3C Trace Context).
    traceparent text,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz
  );
  CREATE INDEX syncs_by_connection ON syncs (connection_id, requested_at DESC);
  CREATE INDEX syncs_by_time ON syncs (requested_at DESC, id DESC);
  -- Finds the previous sync, to report only the first failure in a row.
  CREATE INDEX syncs_finished ON syncs (connection_id, finished_at DESC) WHERE finished_at IS NOT NULL;
  CREATE INDEX syncs_open ON syncs (connection_id) WHERE status IN ('waiting', 'running');
  -- One sync of everything waits, of either mode. By digest, because a scope with a thousand assets is too long for an
  -- index entry.
  CREATE UNIQUE INDEX syncs_waiting ON syncs (connection_id, (CASE WHEN scope = '{}' THEN '' ELSE mode END), md5(scope::text))
    WHERE status = 'waiting';

  -- What a full sync has listed so far, one page per row: assets missing at its end may be gone.
  CREATE TABLE sightings (
    sync_id text NOT NULL REFERENCES syncs ON DELETE CASCADE,
    company_id text NOT NULL,
    ids text[] NOT NULL
  );
  CREATE INDEX sightings_by_sync ON sightings (sync_id, company_id);`;

const bucket = `
  CREATE TABLE verifications (
    id text PRIMARY KEY,
    -- Null: all of them.
    connection_id text REFERENCES connections,
    options jsonb NOT NULL DEFAULT '{}',
    status text NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed')),
    -- Where an interrupted verification continues, and its counts so far.
    position jsonb NOT NULL DEFAULT '{}',
    counts jsonb NOT NULL DEFAULT '{}',
    -- Why it, or its last attempt, failed: a code with data.
    error jsonb,
    -- The lease of the one process that runs it.
    owner text,
    until timestamptz,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz
  );
  CREATE INDEX verifications_open ON verifications (requested_at) WHERE status IN ('waiting', 'running');
  -- Of scheduled ones, one waits per connection, and one for all.
  CREATE UNIQUE INDEX verifications_scheduled ON verifications (coalesce(connection_id, ''))
    WHERE status = 'waiting' AND options->'scheduled' = 'true';

  CREATE TABLE verification_lines (
    verification_id text NOT NULL REFERENCES verifications ON DELETE CASCADE,
    number bigint NOT NULL,
    mark text NOT NULL CHECK (mark IN ('=', '-', '+', '*', '!')),
    key text,
    asset_id text,
    -- Which of the asset's objects, and how to repair it.
    kind text,
    remedy text,
    -- What was found; null: the object is as expected.
    reason jsonb,
    difference boolean NOT NULL,
    PRIMARY KEY (verification_id, number)
  );
  -- For erasures: lines of an asset, and objects without one in a folder with its name.
  CREATE INDEX verification_lines_by_asset ON verification_lines (asset_id) WHERE asset_id IS NOT NULL;
  CREATE INDEX verification_lines_by_folder ON verification_lines USING gin (string_to_array(key, '/'))
    WITH (fastupdate = off) WHERE asset_id IS NULL;
  CREATE INDEX verification_remedies ON verification_lines (verification_id, asset_id) WHERE remedy IS NOT NULL;

  -- The scrub: the lease of the one process that runs it, and its rate. At most one row.
  CREATE TABLE scrub (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    owner text,
    until timestamptz,
    -- Weight per ms, and bytes per second of it, as computed last; and how many files could not be compared then.
    rate float8 NOT NULL DEFAULT 0,
    bytes_per_second float8 NOT NULL DEFAULT 0,
    unverifiable bigint NOT NULL DEFAULT 0,
    planned_at timestamptz,
    -- When the last asset was read.
    read_at timestamptz
  );

  -- One row a day. Its lease holder writes the day's inventory.
  CREATE TABLE inventories (
    day date PRIMARY KEY,
    owner text,
    until timestamptz,
    -- How many assets were pending when it was written. If there were any, it is written again later.
    waiting bigint,
    written_at timestamptz
  );

  -- Restore drills.
  CREATE TABLE drills (
    id text PRIMARY KEY,
    sample integer NOT NULL,
    scheduled boolean NOT NULL,
    status text NOT NULL CHECK (status IN ('waiting', 'running', 'passed', 'failed')),
    -- The lease of the one process that runs it.
    owner text,
    until timestamptz,
    -- How often it was begun, except by processes that were shut down, and why the last attempt failed (a code with data).
    attempts integer NOT NULL DEFAULT 0,
    error jsonb,
    report jsonb,
    -- Where the report is in the bucket.
    key text,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    finished_at timestamptz
  );
  CREATE UNIQUE INDEX drills_waiting ON drills (status) WHERE status = 'waiting';

  -- The chain of manifests, as in the bucket.
  CREATE TABLE manifests (
    number bigint PRIMARY KEY,
    day date NOT NULL,
    sha256 text NOT NULL,
    -- Null: nothing signed it.
    key_id text,
    envelope text NOT NULL,
    added_at timestamptz NOT NULL DEFAULT now()
  );`;

const removals = `
  -- What operators protect from removal.
  CREATE TABLE holds (
    kind text NOT NULL CHECK (kind IN ('asset', 'project', 'connection')),
    id text NOT NULL,
    reason text,
    held_by text NOT NULL,
    held_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id)
  );
  -- An asset that leaves what is protected stays protected, or a move in the library would end that.
  CREATE FUNCTION protect_moved_asset() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO holds (kind, id, reason, held_by)
    SELECT 'asset', old.id, h.reason, h.held_by FROM holds h
    WHERE (h.kind, h.id) = ('project', old.project_id) OR h.kind = 'connection' AND EXISTS (
      SELECT FROM access x WHERE (x.connection_id, x.company_id) = (h.id, old.company_id))
    LIMIT 1 ON CONFLICT DO NOTHING;
    RETURN NULL;
  END $$;
  CREATE TRIGGER protect_moved_assets AFTER UPDATE OF project_id, company_id ON assets FOR EACH ROW
    WHEN ((old.project_id, old.company_id) IS DISTINCT FROM (new.project_id, new.company_id))
    EXECUTE FUNCTION protect_moved_asset();

  -- Assets that are never mirrored again, by the SHA-256 of their id.
  CREATE TABLE tombstones (
    hash text PRIMARY KEY,
    -- When its erasure last began; until then, when it was requested.
    erased_at timestamptz NOT NULL,
    erased_by text NOT NULL,
    reason text NOT NULL
  );

  CREATE TABLE erasures (
    id text PRIMARY KEY,
    reason text NOT NULL,
    requested_by text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
  );
  CREATE INDEX erasures_open ON erasures (id) WHERE finished_at IS NULL;
  CREATE TABLE erasure_assets (
    erasure_id text NOT NULL REFERENCES erasures,
    hash text NOT NULL,
    -- Null: it is erased, or a hold protects it.
    asset_id text,
    state text NOT NULL CHECK (state IN ('waiting', 'erased', 'protected')),
    -- What was in the bucket when its removal began.
    objects bigint,
    bytes bigint,
    erased_at timestamptz,
    PRIMARY KEY (erasure_id, hash)
  );
  CREATE INDEX erasure_assets_waiting ON erasure_assets (asset_id) WHERE asset_id IS NOT NULL;

  -- Versions of objects of removed assets that could not be removed yet.
  CREATE TABLE leftovers (
    key text NOT NULL,
    version_id text NOT NULL,
    hash text NOT NULL,
    bytes bigint NOT NULL,
    locked_until timestamptz,
    retry_at timestamptz NOT NULL,
    PRIMARY KEY (key, version_id)
  );
  CREATE INDEX leftovers_due ON leftovers (retry_at);
  CREATE INDEX leftovers_by_asset ON leftovers (hash);`;

const operators = `
  -- Ids are assigned before transactions end, so a reader in the order of ids could miss events. In the order of
  -- transactions, without those still open, no event is inserted in between.
  CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    connection_id text,
    asset_id text,
    data jsonb NOT NULL DEFAULT '{}'
  );
  CREATE INDEX events_in_order ON events (xact, id);
  CREATE INDEX events_by_kind ON events (kind, id);
  CREATE INDEX events_by_connection ON events (connection_id, id);
  CREATE INDEX events_by_asset ON events (asset_id, id) WHERE asset_id IS NOT NULL;
  -- For pruning: by age, and the last of each kind.
  CREATE INDEX events_by_age ON events (at);
  CREATE INDEX events_last ON events (connection_id, kind, id) WHERE asset_id IS NULL;
  -- The audit log.
  CREATE INDEX events_of_operators ON events (id) WHERE kind LIKE 'operator.%';
  -- Also called for a statement that adds none. A notice costs every process a read.
  CREATE FUNCTION tell_of_events() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    IF EXISTS (SELECT FROM added) THEN PERFORM pg_notify('asset_mirror_events', ''); END IF;
    RETURN NULL;
  END $$;
  CREATE TRIGGER events_tell AFTER INSERT ON events REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION tell_of_events();

  CREATE TABLE webhook_endpoints (
    id text PRIMARY KEY,
    -- The beginning of its address: the rest may be a secret.
    url text NOT NULL,
    -- The sealed address and secrets. Null: they are in the environment.
    sealed text,
    description text,
    kinds text[] NOT NULL,
    filters jsonb NOT NULL DEFAULT '{}',
    enabled boolean NOT NULL DEFAULT true,
    -- When it answered 410: it gets nothing until it is enabled again.
    gone_at timestamptz,
    -- Since when all processes have lacked its address in the environment. Null: one has it.
    unseen_since timestamptz,
    created_at timestamptz NOT NULL DEFAULT now()
  );
  -- An event and an endpoint: what waits, and the log of what was sent.
  CREATE TABLE webhook_deliveries (
    id text PRIMARY KEY,
    endpoint_id text NOT NULL REFERENCES webhook_endpoints ON DELETE CASCADE,
    state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed')),
    kind text NOT NULL,
    at timestamptz NOT NULL,
    connection_id text,
    asset_id text,
    data jsonb NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    waiting_since timestamptz NOT NULL,
    next_at timestamptz NOT NULL,
    -- The last attempt: when it ended, the HTTP status of the answer, what was wrong, and how long it took.
    attempted_at timestamptz,
    status integer,
    error text,
    ms integer
  );
  CREATE INDEX webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_at) WHERE state = 'waiting';
  CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (waiting_since) WHERE state = 'waiting';
  CREATE INDEX webhook_deliveries_in_order ON webhook_deliveries (endpoint_id, state, at DESC, id DESC);
  CREATE INDEX webhook_deliveries_by_asset ON webhook_deliveries (asset_id) WHERE asset_id IS NOT NULL;

  -- Periodic tasks that one process at a time does, and when each is due.
  CREATE TABLE chores (
    name text PRIMARY KEY,
    due_at timestamptz NOT NULL
  );
  -- Settings that operators change while processes run, which override the environment; and what processes remember.
  CREATE TABLE settings (
    name text PRIMARY KEY,
    value jsonb NOT NULL
  );
  -- Of operators who signed in. The browser or terminal keeps the secret; here is its hash.
  CREATE TABLE sessions (
    id text PRIMARY KEY,
    hash text NOT NULL UNIQUE,
    subject text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    method text NOT NULL,
    address text NOT NULL,
    user_agent text,
    -- Digest of what gave the role: ADMIN_TOKEN, or the settings of the provider. Others end the session.
    given_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL DEFAULT now(),
    ends_at timestamptz NOT NULL
  );
  -- The days of the audit log that are in the bucket.
  CREATE TABLE audit_days (
    day date PRIMARY KEY
  );
  CREATE TABLE api_tokens (
    id text PRIMARY KEY,
    name text NOT NULL UNIQUE,
    role text NOT NULL,
    hash text NOT NULL UNIQUE,
    beginning text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    last_used_at timestamptz
  );`;

/** The first migration creates the whole schema. */
export const initialSchema: Migration = {
  async up(db) {
    for (const part of [
      connections,
      assets,
      facets,
      transcripts,
      counts(),
      changes,
      syncs,
      bucket,
      removals,
      operators,
    ])
      await sql.raw(part).execute(db);
  },
};
