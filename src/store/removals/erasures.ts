import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import { forgetErased } from '../changes/changes.ts';
import { jsonb } from '../database/jsonb.ts';
import type { Asset, Database } from '../database/schema.ts';
import { protectedByHold } from './holds.ts';
import { deleteAsset, forgetAsset, type Leftover, type Removed, saveLeftovers } from './remove.ts';
import { hashOfColumn } from './tombstones.ts';

/** Which assets to erase: exactly one of these. */
export type ErasureScope =
  | { assetIds: string[] }
  | { projectId: string }
  | { companyId: string }
  | { connectionId: string };

function within(scope: ErasureScope): RawBuilder<boolean> {
  if ('assetIds' in scope) return sql`a.id = ANY(${scope.assetIds}::text[])`;
  if ('projectId' in scope) return sql`a.project_id = ${scope.projectId}`;
  if ('companyId' in scope) return sql`a.company_id = ${scope.companyId}`;
  return sql`a.connection_id = ${scope.connectionId}`;
}

/** The versions of assets of which a rebuild has found only superseded files. */
const superseded = sql`(
  SELECT asset_id AS id, NULL::text AS connection_id, company_id, project_id FROM asset_versions v
  WHERE NOT EXISTS (SELECT FROM assets WHERE id = v.asset_id))`;

const known = sql`(SELECT id FROM assets UNION ALL SELECT id FROM ${superseded} AS s)`;

/** The assets of a scope. If an asset has only superseded files, all are erased: a hold on any of them protects the asset. */
const chosen = (scope: ErasureScope) => sql`(
  SELECT a.id, a.bytes, ${protectedByHold} AS is_protected FROM assets a WHERE ${within(scope)}
  UNION ALL SELECT a.id, NULL, bool_or(${protectedByHold}) FROM ${superseded} AS a
  WHERE a.id IN (SELECT a.id FROM ${superseded} AS a WHERE ${within(scope)}) GROUP BY a.id)`;

/** What an erasure would remove. */
export async function previewErasure(db: Database, scope: ErasureScope) {
  const { rows } = await sql<{ assets: number; bytes: number; protectedAssets: number }>`
    SELECT count(*) FILTER (WHERE NOT is_protected) AS assets, count(*) FILTER (WHERE is_protected) AS protected_assets,
      coalesce(sum(bytes) FILTER (WHERE NOT is_protected), 0)::bigint AS bytes
    FROM ${chosen(scope)} AS a`.execute(db);
  return rows[0]!;
}

/** Returns the ids that no asset has. */
export async function unknownAssets(db: Database, ids: string[]): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM unnest(${ids}::text[]) AS ids (id) WHERE id NOT IN (
      SELECT a.id FROM ${known} AS a WHERE a.id = ANY(${ids}::text[]))`.execute(db);
  return rows.map(({ id }) => id);
}

/**
 * Begins to erase assets, except protected ones. Returns the id of the erasure; a worker does the rest. Once it has leased an
 * asset, no sync records that one.
 */
export async function requestErasure(
  db: Database,
  { scope, reason, by }: { scope: ErasureScope; reason: string; by: string },
): Promise<string> {
  const id = randomUUID();
  await db.transaction().execute(async (tx) => {
    // Holds that are being saved come first, and later ones find the erasure: `heldTooLate`.
    await sql`LOCK TABLE holds IN SHARE MODE`.execute(tx);
    await sql`INSERT INTO erasures (id, reason, requested_by) VALUES (${id}, ${reason}, ${by})`.execute(tx);
    await sql`
      INSERT INTO erasure_assets (erasure_id, hash, asset_id, state)
      SELECT ${id}, ${hashOfColumn('a.id')}, CASE WHEN NOT is_protected THEN id END, CASE WHEN is_protected THEN 'protected' ELSE 'waiting' END
      FROM ${chosen(scope)} AS a`.execute(tx);
    await sql`
      INSERT INTO tombstones (hash, erased_at, erased_by, reason)
      SELECT hash, now(), ${by}, ${reason} FROM erasure_assets WHERE erasure_id = ${id} AND state = 'waiting'
      ON CONFLICT DO NOTHING`.execute(tx);
  });
  return id;
}

/**
 * Begins to erase assets that have a tombstone, but are in the records: they were restored with an older backup of the database.
 * A hold does not protect them: that would be from before their erasure. May run at any time.
 */
export async function eraseAgain(db: Database): Promise<void> {
  await sql`
    WITH restored AS MATERIALIZED (
      SELECT DISTINCT a.id, t.hash FROM tombstones t JOIN ${known} AS a ON ${hashOfColumn('a.id')} = t.hash
      WHERE NOT EXISTS (SELECT FROM erasure_assets e WHERE e.asset_id = a.id)
    ), erasure AS (
      INSERT INTO erasures (id, reason, requested_by)
      SELECT ${randomUUID()}, 'erased before, and restored with a backup of the database', 'rebuild'
      WHERE EXISTS (SELECT FROM restored) RETURNING id)
    INSERT INTO erasure_assets (erasure_id, hash, asset_id, state)
    SELECT erasure.id, restored.hash, restored.id, 'waiting' FROM erasure CROSS JOIN restored`.execute(db);
}

export interface WaitingErasure {
  erasureId: string;
  assetId: string;
  hash: string;
  /** Objects in the bucket when the removal of the asset began; null: it has not begun. */
  objects: number | null;
}

/** A page of assets that are to be erased, after the last one of the page before. */
export async function waitingErasures(db: Database, after: string, limit: number): Promise<WaitingErasure[]> {
  const { rows } = await sql<WaitingErasure>`
    SELECT erasure_id, asset_id, hash, objects FROM erasure_assets
    WHERE asset_id IS NOT NULL AND asset_id > ${after} ORDER BY asset_id LIMIT ${limit}`.execute(db);
  return rows;
}

/**
 * Saves what is in the bucket before anything is removed, so that the certificate is right after a crash, too. Another erasure
 * that names the asset gets the same counts: both end together.
 */
export async function saveErasureCounts(
  db: Database,
  { assetId }: Pick<WaitingErasure, 'assetId'>,
  { objects, bytes }: Pick<Removed, 'objects' | 'bytes'>,
): Promise<void> {
  await sql`
    UPDATE erasure_assets SET objects = ${objects}, bytes = ${bytes}
    WHERE asset_id = ${assetId} AND objects IS NULL`.execute(db);
}

/**
 * Deletes everything that the database knows of an erased asset, except its ids in the feed. `segment`: its id in object keys;
 * `asset`: undefined if it has no row any more.
 */
export async function finishAssetErasure(
  db: Database,
  { assetId, hash, segment }: Pick<WaitingErasure, 'assetId' | 'hash'> & { segment: string },
  asset: Pick<Asset, 'id' | 'lease'> | undefined,
  left: Leftover[],
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    if (asset && !(await deleteAsset(tx, asset))) return false;
    if (!asset) await forgetAsset(tx, assetId);
    await forgetFindings(tx, assetId, segment);
    // The audit log keeps what operators did, without the asset.
    await sql`UPDATE events SET asset_id = NULL WHERE asset_id = ${assetId} AND kind LIKE 'operator.%'`.execute(tx);
    await sql`DELETE FROM events WHERE asset_id = ${assetId}`.execute(tx);
    // Again: meanwhile the events may have become deliveries.
    await sql`DELETE FROM webhook_deliveries WHERE asset_id = ${assetId}`.execute(tx);
    await forgetErased(tx, assetId);
    await sql`DELETE FROM holds WHERE kind = 'asset' AND id = ${assetId}`.execute(tx);
    await saveLeftovers(tx, hash, left);
    await sql`
      UPDATE erasure_assets SET state = 'erased', asset_id = NULL, erased_at = now()
      WHERE asset_id = ${assetId}`.execute(tx);
    return true;
  });
}

/** Deletes the asset from reports: objects that no record names, and what drills have found. */
async function forgetFindings(tx: Database, assetId: string, segment: string): Promise<void> {
  // The expression of the index verification_lines_by_folder.
  await sql`
    DELETE FROM verification_lines WHERE asset_id IS NULL AND string_to_array(key, '/') @> ARRAY[${segment}::text]
      AND strpos(key, ${`/${segment}/`}) > 0`.execute(tx);
  const isOther = sql`'$[*] ? (@.assetId != $id)', ${jsonb({ id: assetId })}`;
  await sql`
    UPDATE drills SET report = report
      || jsonb_build_object('loss', report->'loss' || jsonb_build_object(
        'examples', jsonb_path_query_array(report#>'{loss,examples}', ${isOther})))
      || jsonb_build_object('sample', report->'sample' || jsonb_build_object(
        'damaged', jsonb_path_query_array(report#>'{sample,damaged}', ${isOther}),
        'unreadable', jsonb_path_query_array(report#>'{sample,unreadable}', ${isOther})))
      || jsonb_build_object('problems', report->'problems' || jsonb_build_object('lines', (
        SELECT coalesce(jsonb_agg(line), '[]') FROM jsonb_array_elements_text(report#>'{problems,lines}') AS line
        WHERE strpos(line, ${`/${segment}/`}) = 0)))
    WHERE strpos(report::text, ${JSON.stringify(assetId)}) > 0 OR strpos(report::text, ${`/${segment}/`}) > 0`.execute(
    tx,
  );
}

/** Ends erasures of which no asset is waiting. Returns their ids. */
export async function finishErasures(db: Database): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    UPDATE erasures e SET finished_at = now() WHERE finished_at IS NULL AND NOT EXISTS (
      SELECT FROM erasure_assets WHERE erasure_id = e.id AND asset_id IS NOT NULL) RETURNING id`.execute(db);
  return rows.map(({ id }) => id);
}

interface Erasure {
  id: string;
  reason: string;
  requestedBy: string;
  requestedAt: Date;
  finishedAt: Date | null;
  waiting: number;
  erased: number;
  protectedAssets: number;
  objects: number;
  bytes: number;
  /** Objects that are still in the bucket. */
  left: number;
}

export async function erasures(db: Database, id?: string): Promise<Erasure[]> {
  const { rows } = await sql<Erasure>`
    SELECT e.*, c.* FROM (
      SELECT * FROM erasures WHERE ${id ?? null}::text IS NULL OR id = ${id ?? null} ORDER BY requested_at DESC LIMIT 100
    ) AS e CROSS JOIN LATERAL (
      SELECT count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'erased') AS erased,
        count(*) FILTER (WHERE state = 'protected') AS protected_assets, coalesce(sum(objects), 0)::bigint AS objects,
        coalesce(sum(bytes), 0)::bigint AS bytes,
        (SELECT count(*) FROM leftovers l JOIN erasure_assets x USING (hash) WHERE x.erasure_id = e.id) AS left
      FROM erasure_assets WHERE erasure_id = e.id
    ) AS c ORDER BY e.requested_at DESC`.execute(db);
  return rows;
}

interface ErasedAsset {
  hash: string;
  state: 'erased' | 'protected';
  objects: number | null;
  bytes: number | null;
  erasedAt: Date | null;
}

/** The parts of the certificate of an erasure. */
export async function erasureDetails(db: Database, id: string): Promise<{ assets: ErasedAsset[]; left: Leftover[] }> {
  const assets = await sql<ErasedAsset>`
    SELECT hash, state, objects, bytes, erased_at FROM erasure_assets
    WHERE erasure_id = ${id} AND asset_id IS NULL ORDER BY hash`.execute(db);
  const left = await sql<Leftover>`
    SELECT l.key, l.version_id, l.bytes, l.locked_until
    FROM leftovers l JOIN erasure_assets USING (hash) WHERE erasure_id = ${id} ORDER BY l.key, l.version_id`.execute(
    db,
  );
  return { assets: assets.rows, left: left.rows };
}
