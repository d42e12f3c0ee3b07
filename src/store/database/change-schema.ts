/**
 * The position of a change in the feed: the id of its transaction, so that no row appears later between two that were read (see
 * https://event-driven.io/en/ordering_in_postgres_outbox/). A transaction that began earlier can change an asset later: `greatest`
 * puts its change after the asset's previous one.
 */
const xactOf = (assetId: string) => `greatest(pg_current_xact_id(),
  (SELECT xact FROM asset_changes WHERE asset_id = ${assetId} ORDER BY xact DESC LIMIT 1))`;

/** Also a record that was written again with other content, such as after the asset has moved to another company. */
const metadata = `((old.detail, old.company_id) IS DISTINCT FROM (new.detail, new.company_id)
  OR old.record_key IS NULL AND new.record_key IS NOT NULL AND (old.sidecar_files#>ARRAY[new.record_key, 'crc32'])
    IS DISTINCT FROM (new.sidecar_files#>ARRAY[new.record_key, 'crc32']))`;
const transcript = `new.transcript_state = 'mirrored'
  AND (old.transcript_state, old.transcript_keys) IS DISTINCT FROM (new.transcript_state, new.transcript_keys)`;
const thumbnail = `new.thumbnail_state = 'mirrored'
  AND (old.thumbnail_state, old.thumbnail) IS DISTINCT FROM (new.thumbnail_state, new.thumbnail)`;

/**
 * The feed. Triggers write each change in the transaction that makes it, so none is lost. A row has all objects of the asset after
 * the change.
 */
export const changes = `
  CREATE TABLE asset_changes (
    xact xid8 NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    asset_id text NOT NULL,
    connection_id text,
    company_id text NOT NULL,
    project_id text,
    name text,
    -- The key of the media. "objects": length and CRC-32 of each object, by the part of its key after that of the media.
    key text,
    objects jsonb,
    PRIMARY KEY (xact, id)
  );
  CREATE INDEX asset_changes_by_asset ON asset_changes (asset_id, xact);

  -- One row.
  CREATE TABLE change_feed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    -- Part of each cursor, so that a cursor of another feed is refused.
    id text NOT NULL DEFAULT left(gen_random_uuid()::text, 8),
    place text NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(),
    -- Up to which position changes were deleted, and up to which they are in files.
    pruned_xact xid8 NOT NULL DEFAULT '0',
    pruned_id bigint NOT NULL DEFAULT 0,
    filed_xact xid8 NOT NULL DEFAULT '0',
    filed_id bigint NOT NULL DEFAULT 0,
    filed_hour timestamptz,
    -- The file that is being written: its hour and its last change.
    filing_hour timestamptz,
    filing_xact xid8,
    filing_id bigint
  );
  -- The cluster and its timeline: transaction ids of another one cannot be compared. Empty: the server does not report it.
  CREATE FUNCTION place_of_transactions() RETURNS text LANGUAGE plpgsql AS $$
  BEGIN
    RETURN (SELECT concat(s.system_identifier, '/', c.timeline_id) FROM pg_control_system() s, pg_control_checkpoint() c);
  EXCEPTION WHEN OTHERS THEN
    RETURN '';
  END $$;
  INSERT INTO change_feed (place) VALUES (place_of_transactions());

  CREATE FUNCTION mark_in_copy() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    new.in_copy = new.state <> 'gone';
    RETURN new;
  END $$;
  CREATE TRIGGER mark_in_copy_insert BEFORE INSERT ON assets
    FOR EACH ROW WHEN (new.state = 'mirrored' AND new.record_key IS NOT NULL) EXECUTE FUNCTION mark_in_copy();
  CREATE TRIGGER mark_in_copy_update BEFORE UPDATE OF state, record_key ON assets
    FOR EACH ROW WHEN (CASE WHEN new.in_copy THEN new.state = 'gone' ELSE new.state = 'mirrored' AND new.record_key IS NOT NULL END)
    EXECUTE FUNCTION mark_in_copy();

  CREATE FUNCTION add_change() RETURNS trigger LANGUAGE plpgsql AS $$
  DECLARE
    kinds text[];
    media_key text;
    objects jsonb;
  BEGIN
    IF NOT new.in_copy THEN kinds = '{gone}';
    ELSIF TG_OP = 'INSERT' OR NOT old.in_copy THEN kinds = '{added}';
    ELSIF old.mirrored_at IS NULL THEN kinds = '{replaced}';
    ELSE
      kinds = array_remove(ARRAY[CASE WHEN ${metadata} THEN 'metadata' END, CASE WHEN ${transcript} THEN 'transcript' END,
        CASE WHEN ${thumbnail} THEN 'thumbnail' END], NULL);
    END IF;
    IF new.in_copy THEN
      media_key = coalesce(new.media->>'key', '');
      SELECT jsonb_build_object('', jsonb_build_array(new.media->'bytes', new.media#>'{checksums,crc32}')) || coalesce(
        jsonb_object_agg(substr(sidecar, length(media_key) + 1), jsonb_build_array(
          coalesce(new.sidecar_files->sidecar->'bytes', CASE sidecar WHEN new.thumbnail->>'key' THEN new.thumbnail->'bytes' END),
          new.sidecar_files->sidecar->'crc32')), '{}')
      INTO objects FROM (
        -- A record that is to be written again is still in the bucket.
        SELECT coalesce(new.record_key, old.record_key) AS sidecar UNION ALL SELECT new.thumbnail->>'key'
        UNION ALL SELECT jsonb_array_elements_text(
          CASE jsonb_typeof(new.transcript_keys) WHEN 'array' THEN new.transcript_keys ELSE '[]' END)) AS sidecars
      WHERE sidecar IS NOT NULL;
    END IF;
    INSERT INTO asset_changes (xact, kind, asset_id, connection_id, company_id, project_id, name, key, objects)
    SELECT ${xactOf('new.id')}, kind, new.id, new.connection_id, new.company_id, new.project_id, new.name, media_key, objects
    FROM unnest(kinds) AS kind;
    RETURN NULL;
  END $$;
  CREATE TRIGGER add_changes_insert AFTER INSERT ON assets FOR EACH ROW WHEN (new.in_copy) EXECUTE FUNCTION add_change();
  -- A trigger per statement would have to join old and new rows each time, and most statements change nothing here.
  CREATE TRIGGER add_changes_update
    AFTER UPDATE OF state, record_key, mirrored_at, detail, company_id, transcript_state, thumbnail_state ON assets
    FOR EACH ROW WHEN (old.in_copy <> new.in_copy OR new.in_copy AND new.mirrored_at IS NOT NULL
      AND (old.mirrored_at IS NULL OR ${metadata} OR ${transcript} OR ${thumbnail}))
    EXECUTE FUNCTION add_change();

  -- An asset that was erased, or removed by GONE_RETENTION, leaves only its ids.
  CREATE FUNCTION add_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO asset_changes (xact, kind, asset_id, connection_id, company_id, project_id)
    VALUES (${xactOf('old.id')}, 'erased', old.id, old.connection_id, old.company_id, old.project_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER add_changes_delete AFTER DELETE ON assets
    FOR EACH ROW WHEN (old.state = 'gone') EXECUTE FUNCTION add_erasure();`;
