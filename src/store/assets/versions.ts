import { type RawBuilder, sql } from 'kysely';
import { recordset } from '../database/recordset.ts';
import { rowsWritten, wroteAny } from '../database/results.ts';
import type { AssetVersion, Database } from '../database/schema.ts';
import { inMs, msAgo } from '../database/time.ts';
import { isBeingRemoved } from './being-removed.ts';
import { type AssetLease, stillLeased } from './leases.ts';
import { hasValidFile } from './stored-file.ts';

/**
 * Begins to keep a version of a leased asset, and returns its time. A version that an earlier lease began, and did not finish, is
 * continued: then it is the time of that one. Each version is later than the one before, also after the clock was set back.
 * Undefined: the worker has lost its lease.
 */
export async function begin(db: Database, lease: AssetLease): Promise<Date | undefined> {
  const { rows } = await sql<{ keepingAt: Date }>`
    UPDATE assets SET keeping_at = coalesce(keeping_at, greatest(date_trunc('milliseconds', clock_timestamp()),
      (SELECT max(replaced_at) FROM asset_versions WHERE asset_id = assets.id) + interval '1 ms'))
    WHERE ${stillLeased(lease)} RETURNING keeping_at`.execute(db);
  return rows[0]?.keepingAt;
}

/** The version will not be kept, and nothing of it is in the bucket. */
export async function forget(db: Database, lease: AssetLease): Promise<boolean> {
  return wroteAny(await sql`UPDATE assets SET keeping_at = NULL WHERE ${stillLeased(lease)}`.execute(db));
}

/** Assets of which a version was begun more than `ms` ago, and not recorded. Usually they have no work any more. */
export async function abandoned(db: Database, { ms, after, limit }: { ms: number; after: string; limit: number }) {
  const { rows } = await sql<{ id: string; keepingAt: Date }>`
    SELECT id, keeping_at FROM assets WHERE keeping_at < ${msAgo(ms)} AND id > ${after} ORDER BY id LIMIT ${limit}`.execute(
    db,
  );
  return rows;
}

/** The version that was begun at that time is no longer in the bucket. */
export async function forgetAbandoned(db: Database, of: { id: string; keepingAt: Date }): Promise<void> {
  await sql`
    UPDATE assets SET keeping_at = NULL WHERE id = ${of.id} AND keeping_at = ${of.keepingAt}::timestamptz`.execute(db);
}

/** Adds versions; known ones stay as they are. Returns how many are new. */
export async function add(db: Database, versions: AssetVersion[]): Promise<number> {
  if (versions.length === 0) return 0;
  const result = await sql`
    INSERT INTO asset_versions (asset_id, replaced_at, company_id, project_id, mirrored_at, reason, media, files, bytes)
    SELECT * FROM ${recordset(versions)} AS v (asset_id text, replaced_at timestamptz, company_id text, project_id text,
      mirrored_at timestamptz, reason jsonb, media jsonb, files jsonb, bytes bigint)
    ON CONFLICT DO NOTHING`.execute(db);
  return rowsWritten(result);
}

/** The versions of an asset, newest first. */
export async function ofAsset(db: Database, assetId: string): Promise<AssetVersion[]> {
  return db
    .selectFrom('assetVersions')
    .selectAll()
    .where('assetId', '=', assetId)
    .orderBy('replacedAt', 'desc')
    .execute();
}

/**
 * Versions that were superseded more than `keepMs` ago, oldest first. The newest version of an asset without a complete copy
 * stays, also if a rebuild has found nothing else of the asset.
 */
export async function expired(db: Database, { keepMs, limit }: { keepMs: number; limit: number }) {
  const { rows } = await sql<AssetVersion & { retryAt: Date | null }>`
    SELECT * FROM asset_versions v
    WHERE replaced_at < ${msAgo(keepMs)} AND (retry_at IS NULL OR retry_at <= now()) AND (
      EXISTS (SELECT FROM assets a WHERE a.id = v.asset_id AND ${hasValidFile('a')})
      OR EXISTS (
        SELECT FROM asset_versions newer WHERE newer.asset_id = v.asset_id AND newer.replaced_at > v.replaced_at))
    ORDER BY replaced_at LIMIT ${limit}`.execute(db);
  return rows;
}

type Id = Pick<AssetVersion, 'assetId' | 'replacedAt'>;

/** Removes a version whose objects are no longer in the bucket. */
export async function remove(db: Database, { assetId, replacedAt }: Id): Promise<void> {
  await db.deleteFrom('assetVersions').where('assetId', '=', assetId).where('replacedAt', '=', replacedAt).execute();
}

/** Whether a version exists, and is not being removed. */
export async function isKept(db: Database, { assetId, replacedAt }: Id): Promise<boolean> {
  const { rows } = await sql`
    SELECT FROM asset_versions v
    WHERE asset_id = ${assetId} AND replaced_at = ${replacedAt} AND NOT ${isBeingRemoved}`.execute(db);
  return rows.length > 0;
}

/** The objects of a version are removed next. */
export async function beginRemoval(db: Database, { assetId, replacedAt }: Id): Promise<void> {
  await sql`
    UPDATE asset_versions SET removing_at = now() WHERE asset_id = ${assetId} AND replaced_at = ${replacedAt}`.execute(
    db,
  );
}

/** The objects of a version could not be removed: it is expired again after `ms`. */
export async function retryLater(db: Database, { assetId, replacedAt }: Id, ms: number): Promise<void> {
  await sql`
    UPDATE asset_versions SET retry_at = ${inMs(ms)}
    WHERE asset_id = ${assetId} AND replaced_at = ${replacedAt}`.execute(db);
}

export async function total(db: Database) {
  const { rows } = await sql<{ count: number; bytes: number }>`
    SELECT count(*) AS count, coalesce(sum(bytes), 0)::bigint AS bytes FROM asset_versions`.execute(db);
  return rows[0]!;
}

/** A page of all versions, or of those of a connection, by asset and time. */
export async function page(
  db: Database,
  page: { after: { assetId: string; replacedAt: Date } | undefined; limit: number; connectionId?: string | undefined },
): Promise<AssetVersion[]> {
  const { after, limit, connectionId } = page;
  const { rows } = await sql<AssetVersion>`
    SELECT v.* FROM asset_versions v
    WHERE ${after ? sql`(v.asset_id, v.replaced_at) > (${after.assetId}, ${after.replacedAt}::timestamptz)` : sql`true`}
      AND ${connectionId === undefined ? sql`true` : sql`EXISTS (SELECT FROM assets a WHERE a.id = v.asset_id AND a.connection_id = ${connectionId})`}
    ORDER BY v.asset_id, v.replaced_at LIMIT ${limit}`.execute(db);
  return rows;
}

/** The versions of these assets, newest first. */
export async function ofAssets(db: Database, ids: string[]): Promise<AssetVersion[]> {
  if (ids.length === 0) return [];
  return db.selectFrom('assetVersions').selectAll().where('assetId', 'in', ids).orderBy('replacedAt', 'desc').execute();
}

/**
 * A page of the ids of assets that have, or had, a file. `projectId` is that of the asset or of one of its versions. `orphans`:
 * instead, the ids of assets that have versions but no row; they belong to no connection. Only reading all versions finds them.
 */
export async function restorable(
  db: Database,
  page: {
    orphans: boolean;
    ids?: string[] | undefined;
    companyId?: string | undefined;
    projectId?: string | undefined;
    connectionId?: string | undefined;
    after: string;
    limit: number;
  },
): Promise<string[]> {
  const { orphans, ids, companyId, projectId, connectionId, after, limit } = page;
  const isVersion = sql`SELECT FROM asset_versions v WHERE v.asset_id = a.id`;
  const all = (...conditions: RawBuilder<unknown>[]) => sql.join(conditions, sql` AND `);
  const ofAsset = [
    sql`a.id > ${after}`,
    ...(ids ? [sql`a.id = ANY(${ids}::text[])`] : [sql`(a.media IS NOT NULL OR EXISTS (${isVersion}))`]),
    ...(companyId !== undefined ? [sql`a.company_id = ${companyId}`] : []),
    ...(projectId !== undefined
      ? [sql`(a.project_id = ${projectId} OR EXISTS (${isVersion} AND v.project_id = ${projectId}))`]
      : []),
    ...(connectionId !== undefined ? [sql`a.connection_id = ${connectionId}`] : []),
  ];
  const ofVersion = [
    sql`v.asset_id > ${after} AND NOT EXISTS (SELECT FROM assets a WHERE a.id = v.asset_id)`,
    ...(ids ? [sql`v.asset_id = ANY(${ids}::text[])`] : []),
    ...(companyId !== undefined ? [sql`v.company_id = ${companyId}`] : []),
    ...(projectId !== undefined ? [sql`v.project_id = ${projectId}`] : []),
    ...(connectionId !== undefined ? [sql`false`] : []),
  ];
  const { rows } = await sql<{ id: string }>`${
    orphans
      ? sql`SELECT DISTINCT v.asset_id AS id FROM asset_versions v WHERE ${all(...ofVersion)}`
      : sql`SELECT a.id FROM assets a WHERE ${all(...ofAsset)}`
  } ORDER BY id LIMIT ${limit}`.execute(db);
  return rows.map(({ id }) => id);
}
