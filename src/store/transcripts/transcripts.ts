import { sql } from 'kysely';
import { recordset } from '../database/recordset.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

/** Some neighbouring lines of a transcript, and when each starts, in ms. */
export interface Passage {
  starts: number[];
  lines: string[];
}

/** A transcript of which search does not know the words yet. A transcript that replaces it has another number. */
export interface UnreadTranscript {
  assetId: string;
  number: number;
  /** The key of the media. */
  key: string;
}

/** Transcripts that are to be read for search, the longest due first. */
export async function unread(db: Database, limit: number): Promise<UnreadTranscript[]> {
  const { rows } = await sql<UnreadTranscript>`
    SELECT t.asset_id, t.number, coalesce(a.media->>'key', '') AS key FROM transcripts t JOIN assets a ON a.id = t.asset_id
    WHERE t.due_at <= now() ORDER BY t.due_at LIMIT ${limit}`.execute(db);
  return rows;
}

export async function countUnread(db: Database): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    SELECT count(*) FROM transcripts WHERE due_at IS NOT NULL`.execute(db);
  return rows[0]!.count;
}

/**
 * Saves the words of a transcript, unless it was replaced or removed meanwhile. `language`: the name of a text search
 * configuration, such as `german`; `simple` takes the place of an unknown one.
 */
export async function saveWords(
  db: Database,
  { assetId, number }: Pick<UnreadTranscript, 'assetId' | 'number'>,
  { language, passages }: { language: string; passages: Passage[] },
): Promise<void> {
  const found = passages.map((passage, index) => ({ ...passage, number: index }));
  await sql`
    WITH current AS MATERIALIZED (
      SELECT asset_id, coalesce((
        SELECT cfgname::text FROM pg_ts_config WHERE cfgname = ${language} AND cfgnamespace = 'pg_catalog'::regnamespace
      ), 'simple') AS language
      FROM transcripts WHERE asset_id = ${assetId} AND number = ${number} AND due_at IS NOT NULL FOR UPDATE
    ), saved AS (
      UPDATE transcripts t SET due_at = NULL, language = CASE WHEN ${found.length}::int > 0 THEN current.language END
      FROM current WHERE t.asset_id = current.asset_id
    )
    INSERT INTO transcript_passages (asset_id, number, language, starts, lines, words)
    SELECT c.asset_id, p.number, c.language, p.starts, p.lines,
      to_tsvector(c.language::regconfig, array_to_string(p.lines, ' '))
    FROM current c CROSS JOIN ${recordset(found)} AS p (number int, starts int[], lines text[])`.execute(db);
}

/** The transcript could not be read: it is due again after `ms`. */
export async function readLater(db: Database, { assetId, number }: UnreadTranscript, ms: number): Promise<void> {
  await sql`
    UPDATE transcripts SET due_at = ${inMs(ms)}
    WHERE asset_id = ${assetId} AND number = ${number} AND due_at IS NOT NULL`.execute(db);
}

/** Deletes the words of some transcripts, which are then due to be read. False: there are no words. */
export async function forgetWords(db: Database, limit: number): Promise<boolean> {
  const { rows } = await sql`
    WITH found AS (
      SELECT asset_id FROM transcripts WHERE language IS NOT NULL LIMIT ${limit} FOR UPDATE SKIP LOCKED
    ), forgotten AS (
      DELETE FROM transcript_passages p USING found WHERE p.asset_id = found.asset_id
    )
    UPDATE transcripts t SET due_at = now(), language = NULL FROM found WHERE t.asset_id = found.asset_id
    RETURNING t.asset_id`.execute(db);
  return rows.length > 0;
}
