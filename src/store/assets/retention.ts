import { sql } from 'kysely';
import { recordset } from '../database/recordset.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

export interface LockedMedia {
  id: string;
  lease: number;
  key: string;
}

const isLibrarys = sql`state <> 'gone' AND media IS NOT NULL`;

/**
 * Media of the library's assets whose lock ends within `ms`, a page after `after`: first to end comes first. Worded like
 * the index `assets_retained`.
 */
export async function endingLocks(
  db: Database,
  { after, ms, limit }: { after: { until: Date; id: string } | undefined; ms: number; limit: number },
): Promise<(LockedMedia & { until: Date })[]> {
  const { rows } = await sql<LockedMedia & { until: Date }>`
    SELECT id, lease, media->>'key' AS key, retained_until AS until FROM assets
    WHERE retained_until IS NOT NULL AND ${isLibrarys} AND retained_until < ${inMs(ms)}
      ${after ? sql`AND (retained_until, id) > (${after.until}, ${after.id})` : sql``}
    ORDER BY retained_until, id LIMIT ${limit}`.execute(db);
  return rows;
}

/** Media of the library's assets whose lock is not known: a page in the order of ids. */
export async function unknownLocks(
  db: Database,
  { after, limit }: { after: string; limit: number },
): Promise<LockedMedia[]> {
  const { rows } = await sql<LockedMedia>`
    SELECT id, lease, media->>'key' AS key FROM assets
    WHERE id > ${after} AND retained_until IS NULL AND ${isLibrarys} ORDER BY id LIMIT ${limit}`.execute(db);
  return rows;
}

/** Saves until when media is locked, unless it was stored again meanwhile. */
export async function saveLocks(db: Database, locks: { id: string; lease: number; until: Date }[]): Promise<void> {
  if (locks.length === 0) return;
  await sql`
    WITH locks AS (SELECT * FROM ${recordset(locks)} AS locks (id text, lease int, until timestamptz)),
    unchanged AS (
      SELECT a.id, locks.until FROM assets a JOIN locks USING (id, lease) ORDER BY a.id FOR UPDATE OF a)
    UPDATE assets SET retained_until = unchanged.until FROM unchanged WHERE assets.id = unchanged.id`.execute(db);
}
