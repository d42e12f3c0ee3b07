import { type RawBuilder, sql } from 'kysely';
import { firstOpen, isAfter, isFinal, type Position } from '../database/position.ts';
import type { Database } from '../database/schema.ts';
import { cursorOf, readCursor } from './cursor.ts';

type ChangeKind = 'added' | 'replaced' | 'metadata' | 'transcript' | 'thumbnail' | 'gone' | 'erased';

/** A change of the copy of an asset, with the copy as it was then. */
export interface Change {
  cursor: string;
  at: Date;
  kind: ChangeKind;
  assetId: string;
  connectionId: string | null;
  companyId: string;
  projectId: string | null;
  name: string | null;
  /** The media first; none of a gone or erased asset. */
  objects: { key: string; bytes: number | null; crc32: string | null }[];
}

type Row = Omit<Change, 'cursor' | 'objects'> &
  Position & { key: string | null; objects: Record<string, [bytes: number | null, crc32: string | null]> | null };

/** The columns of a page, in the order that readers follow. */
const columns = sql`xact::text, id, at, kind, asset_id, connection_id, company_id, project_id, name, key, objects`;

export interface ChangePage {
  changes: Change[];
  /** The cursor of the last one; without any, where the page begins. */
  nextCursor: string;
}

/** The changes after a cursor, or from the oldest one. `unknown`: it is no cursor; `expired`: changes after it may be missing. */
export async function page(
  db: Database,
  after: string | undefined,
  limit: number,
): Promise<ChangePage | 'unknown' | 'expired'> {
  const cursor = after === undefined ? undefined : readCursor(after);
  if (after !== undefined && !cursor) return 'unknown';
  await renewElsewhere(db);
  const transaction = db.transaction().setIsolationLevel('repeatable read').setAccessMode('read only');
  return transaction.execute(async (tx) => {
    const position = cursor ?? { feed: '', xact: '0', id: 0 };
    const { rows } = await sql<Position & { feed: string; known: boolean }>`
      SELECT id AS feed, pruned_xact::text AS xact, pruned_id AS id,
        id = ${position.feed} AND (pruned_xact, pruned_id) <= (${position.xact}::xid8, ${position.id}::bigint)
        AND ${position.xact}::xid8 <= pg_snapshot_xmax(pg_current_snapshot()) AS known
      FROM change_feed`.execute(tx);
    const { feed, known, ...oldest } = rows[0]!;
    if (cursor && !known) return 'expired';
    const from = cursor ?? oldest;
    const changes = await read(tx, feed, sql`${isAfter(from)} AND ${isFinal}`, limit);
    return { changes, nextCursor: changes.at(-1)?.cursor ?? cursorOf(feed, from) };
  });
}

/** Changes from one position, which is not included, to another, which is. Each page begins after the one before. */
export async function between(
  db: Database,
  { feed, after, last }: { feed: string; after: Position; last: Position },
  limit: number,
): Promise<Change[]> {
  const isBefore = sql`(xact, id) <= (${last.xact}::xid8, ${last.id}::bigint)`;
  return read(db, feed, sql`${isAfter(after)} AND ${isBefore}`, limit);
}

async function read(db: Database, feed: string, which: RawBuilder<unknown>, limit: number): Promise<Change[]> {
  const { rows } = await sql<Row>`
    SELECT ${columns} FROM asset_changes c WHERE ${which} ORDER BY c.xact, c.id LIMIT ${limit}`.execute(db);
  return rows.map(({ xact, id, key, objects, ...change }) => ({
    cursor: cursorOf(feed, { xact, id }),
    ...change,
    objects: Object.entries(objects ?? {}).map(([ending, [bytes, crc32]]) => ({
      key: `${key}${ending}`,
      bytes,
      crc32,
    })),
  }));
}

/** The cursor of now: what was read from the database before it, may miss changes after it. */
export async function currentCursor(db: Database): Promise<string> {
  await renewElsewhere(db);
  const { rows } = await sql<{ feed: string; xact: string }>`
    SELECT id AS feed, ${firstOpen}::text AS xact FROM change_feed`.execute(db);
  return cursorOf(rows[0]!.feed, { xact: rows[0]!.xact, id: 0 });
}

/**
 * Begins a new feed if the database is in another cluster than before, or was restored to an earlier time: its transactions have
 * other numbers, or the same ones again.
 */
export async function renewElsewhere(db: Database): Promise<void> {
  const isElsewhere = sql`place <> place_of_transactions()`;
  const { rows } = await sql`SELECT FROM change_feed WHERE ${isElsewhere}`.execute(db);
  if (rows.length > 0) await renewIf(db, isElsewhere);
}

/** Begins a new feed. For a rebuild: a restored backup does not always show that it is one. */
export const renew = (db: Database): Promise<void> => renewIf(db, sql`true`);

async function renewIf(db: Database, condition: RawBuilder<unknown>): Promise<void> {
  // Assets may be back since the backup. Not in the transaction: a sync that writes both would deadlock.
  await sql`UPDATE access SET listed_at = NULL WHERE EXISTS (SELECT FROM change_feed WHERE ${condition})`.execute(db);
  await db.transaction().execute(async (tx) => {
    // Waits for changes that are being written: they may have the order of the other cluster.
    await sql`LOCK TABLE asset_changes IN EXCLUSIVE MODE`.execute(tx);
    const renewed = await sql`
      UPDATE change_feed SET id = DEFAULT, place = place_of_transactions(), began_at = DEFAULT, pruned_xact = DEFAULT,
        pruned_id = DEFAULT, filed_xact = DEFAULT, filed_id = DEFAULT, filing_hour = NULL, filing_xact = NULL, filing_id = NULL
      WHERE ${condition} RETURNING id`.execute(tx);
    if (renewed.rows.length > 0) await sql`DELETE FROM asset_changes`.execute(tx);
  });
}

/** Deletes what is known of an erased asset, except that it was erased: readers must learn of that. */
export async function forgetErased(db: Database, assetId: string): Promise<void> {
  await sql`DELETE FROM asset_changes WHERE asset_id = ${assetId} AND kind <> 'erased'`.execute(db);
}

/**
 * Deletes up to `batch` changes older than `days` that are in a file, oldest first. Returns how many. Positions decide, so that nothing
 * is missing between those that stay. A time in the future was written while the clock was ahead.
 */
export async function prune(db: Database, days: number, batch: number): Promise<number> {
  const { rows } = await sql<{ deleted: number }>`
    WITH oldest AS (
      SELECT xact, id, bool_and(at < now() - ${days}::int * interval '1 day' OR at > now() + interval '1 day')
        OVER (ORDER BY xact, id) AS old FROM (
        SELECT xact, id, at FROM asset_changes
        WHERE (xact, id) <= ((SELECT filed_xact FROM change_feed), (SELECT filed_id FROM change_feed))
        ORDER BY xact, id LIMIT ${batch}) AS filed
    ), deleted AS (
      DELETE FROM asset_changes c USING oldest o WHERE o.old AND (c.xact, c.id) = (o.xact, o.id) RETURNING c.xact, c.id
    ), moved AS (
      UPDATE change_feed SET (pruned_xact, pruned_id) = (SELECT xact, id FROM deleted ORDER BY xact DESC, id DESC LIMIT 1)
      WHERE EXISTS (SELECT FROM deleted)
    )
    SELECT count(*) AS deleted FROM deleted`.execute(db);
  return rows[0]!.deleted;
}
