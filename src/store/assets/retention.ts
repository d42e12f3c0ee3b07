import { sql } from 'kysely';
import { recordset } from '../database/recordset.ts';
import { rowsWritten } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { readSetting, saveSetting } from '../settings/settings.ts';

export interface LockedMedia {
  id: string;
  lease: number;
  key: string;
}

/** The media of a kept version; it is locked until it expires. */
export interface LockedVersion {
  id: string;
  replacedAt: Date;
  key: string;
  versionId: string | null;
  expiresAt: Date | null;
}

interface Page<T> {
  after: T | undefined;
  limit: number;
}

/** Locks that are forgotten with one statement. All of a million would take longer than a query may. */
const forgottenAtOnce = 10_000;

/** Saves where the locks are. If they were in another bucket before, no lock is known any more. */
export async function saveLockedBucket(db: Database, bucket: string): Promise<void> {
  const name = 'place_of_locks';
  if ((await readSetting(db, name)) === bucket) return;
  for (const table of [sql.table('assets'), sql.table('asset_versions')]) {
    const forget = sql`
      UPDATE ${table} SET retained_until = NULL
      WHERE ctid = ANY(ARRAY(SELECT ctid FROM ${table} WHERE retained_until IS NOT NULL LIMIT ${forgottenAtOnce} FOR UPDATE))`;
    while (rowsWritten(await forget.execute(db)) > 0);
    // A batch whose rows were all written by others meanwhile has forgotten none.
    await sql`UPDATE ${table} SET retained_until = NULL WHERE retained_until IS NOT NULL`.execute(db);
  }
  await saveSetting(db, name, bucket);
}

/** Media of the library's assets whose lock is not known, or ends within `ms`. */
export async function mediaLocks(
  db: Database,
  { after, ms, limit }: Page<Pick<LockedMedia, 'id'>> & { ms: number },
): Promise<LockedMedia[]> {
  const { rows } = await sql<LockedMedia>`
    SELECT id, lease, media->>'key' AS key FROM assets
    WHERE id > ${after?.id ?? ''} AND state <> 'gone' AND media IS NOT NULL
      AND coalesce(retained_until, '-infinity') < ${inMs(ms)}
    ORDER BY id LIMIT ${limit}`.execute(db);
  return rows;
}

/**
 * Versions of the library's assets whose lock is not known, or ends within `ms` and before the version expires after
 * `keepMs`. The media is the first of their files.
 */
export async function versionLocks(
  db: Database,
  { after, ms, keepMs, limit }: Page<Pick<LockedVersion, 'id' | 'replacedAt'>> & { ms: number; keepMs: number },
): Promise<LockedVersion[]> {
  const expiresAt = Number.isFinite(keepMs) ? sql`v.replaced_at + ${keepMs} * interval '1 ms'` : sql`NULL::timestamptz`;
  const { rows } = await sql<LockedVersion>`
    SELECT v.asset_id AS id, v.replaced_at, v.files->0->>'at' AS key, v.files->0->>'versionId' AS version_id,
      ${expiresAt} AS expires_at
    FROM asset_versions v JOIN assets a ON a.id = v.asset_id AND a.state <> 'gone'
    WHERE coalesce(v.retained_until, '-infinity') < least(${inMs(ms)}, ${expiresAt})
      AND coalesce(${expiresAt}, 'infinity') > now()
      ${after ? sql`AND (v.asset_id, v.replaced_at) > (${after.id}, ${after.replacedAt}::timestamptz)` : sql``}
    ORDER BY v.asset_id, v.replaced_at LIMIT ${limit}`.execute(db);
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

/** Saves until when versions are locked. */
export async function saveVersionLocks(
  db: Database,
  locks: (Pick<LockedVersion, 'id' | 'replacedAt'> & { until: Date })[],
): Promise<void> {
  await sql`
    UPDATE asset_versions v SET retained_until = locks.until
    FROM ${recordset(locks)} AS locks (id text, replaced_at timestamptz, until timestamptz)
    WHERE v.asset_id = locks.id AND v.replaced_at = locks.replaced_at`.execute(db);
}
