import { sql } from 'kysely';
import { firstOpen, isAfter, isFinal, type Position } from '../database/position.ts';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { renewElsewhere } from './changes.ts';

/** The changes of an hour, for a file: those after `after`, up to `last`. */
export interface ChangeFile {
  feed: string;
  hour: Date;
  after: Position;
  last: Position;
}

interface FeedRow {
  feed: string;
  filedXact: string;
  filedId: number;
  filingHour: Date | null;
  filingXact: string | null;
  filingId: number | null;
}

/**
 * The next file to be written: the first hour that is over and has changes. Its last change is saved here, so each attempt writes
 * the same. A change that ends up after its hour was filed belongs to the next hour.
 */
export async function nextFile(db: Database): Promise<ChangeFile | undefined> {
  await renewElsewhere(db);
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<FeedRow>`
      SELECT id AS feed, filed_xact::text, filed_id, filing_hour, filing_xact::text, filing_id
      FROM change_feed FOR UPDATE`.execute(tx);
    const row = rows[0]!;
    const after = { xact: row.filedXact, id: row.filedId };
    if (row.filingHour) {
      return { feed: row.feed, hour: row.filingHour, after, last: { xact: row.filingXact!, id: row.filingId! } };
    }
    const next = await cut(tx, after);
    if (!next) return undefined;
    const { hour, ...last } = next;
    await sql`
      UPDATE change_feed SET filing_hour = ${hour}, filing_xact = ${last.xact}::xid8, filing_id = ${last.id}`.execute(
      tx,
    );
    return { feed: row.feed, hour, after, last };
  });
}

const anHour = sql`interval '1 hour'`;

/** The hour of the first change after a position, if it is over, and the last change before the first one of a later hour. */
async function cut(tx: Database, after: Position): Promise<(Position & { hour: Date }) | undefined> {
  const isUnfiled = sql`${isAfter(after)} AND ${isFinal}`;
  // A change from the future was written while the clock was ahead: it belongs to the hour before.
  const { rows: first } = await sql<{ hour: Date; isOver: boolean }>`
    SELECT hour, hour + ${anHour} <= now() AS is_over FROM (
      SELECT greatest(
        date_trunc('hour', CASE WHEN at > now() THEN now() - ${anHour} ELSE at END, 'UTC'),
        (SELECT filed_hour FROM change_feed) + ${anHour}) AS hour
      FROM asset_changes WHERE ${isUnfiled} ORDER BY xact, id LIMIT 1) AS first`.execute(tx);
  if (!first[0]?.isOver) return undefined;
  const { hour } = first[0];
  const { rows: last } = await sql<Position>`
    WITH later AS (
      SELECT xact, id FROM asset_changes
      WHERE ${isUnfiled} AND at >= ${hour}::timestamptz + ${anHour} AND at <= now() ORDER BY xact, id LIMIT 1
    )
    SELECT c.xact::text, c.id FROM asset_changes c WHERE ${isUnfiled}
      AND (xact, id) < (coalesce((SELECT xact FROM later), ${firstOpen}), coalesce((SELECT id FROM later), 0))
    ORDER BY c.xact DESC, c.id DESC LIMIT 1`.execute(tx);
  return last[0] && { hour, ...last[0] };
}

const isOf = ({ feed, hour, last }: ChangeFile) => sql`
  id = ${feed} AND filing_hour = ${hour}::timestamptz AND (filing_xact, filing_id) = (${last.xact}::xid8, ${last.id}::bigint)`;

/** Whether the file is still to be written, and no other process has done so. */
export async function isNextFile(db: Database, file: ChangeFile): Promise<boolean> {
  return (await sql`SELECT FROM change_feed WHERE ${isOf(file)}`.execute(db)).rows.length > 0;
}

/** The file is written. */
export async function fileWritten(db: Database, file: ChangeFile): Promise<boolean> {
  const result = await sql`
    UPDATE change_feed SET filed_xact = filing_xact, filed_id = filing_id, filed_hour = filing_hour,
      filing_hour = NULL, filing_xact = NULL, filing_id = NULL
    WHERE ${isOf(file)}`.execute(db);
  return wroteAny(result);
}
