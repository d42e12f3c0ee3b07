import { sql } from 'kysely';
import pg from 'pg';
import { reasonOf } from '../../floor/errors.ts';
import type { Reason } from '../../floor/reason-codes.ts';
import { isStranded } from '../assets/leases.ts';
import { hasReplacements } from '../companies/held-changes.ts';
import {
  type CompanyPosition,
  type Database,
  type ListedAsset,
  type Sync,
  unreadablePrefix,
} from '../database/schema.ts';
import { extending, leaseLost, positionOf, type SyncLease } from './lease.ts';
import { type Counts, type Decide, type ListedPage, type LockedAsset, writeAssets } from './write-assets.ts';

interface Page {
  sync: Sync;
  lease: SyncLease;
  companyId: string;
  assets: ListedAsset[];
  decide: Decide;
  position: CompanyPosition;
  highWaterMark?: number | null;
  /** Every id on the page: a full sync finds missing assets by these at its end. */
  sighted?: string[];
  /**
   * Only with the last page of a complete full listing: the generated ids of all its items without a readable id. Rows of the company
   * with other generated ids are deleted.
   */
  stillUnreadable?: string[];
}

/**
 * Records a page of a company's listing and the position after it, in one transaction. If the database refuses an asset,
 * the others are recorded nevertheless. `highWaterMark`: on the last page of a listing without limits; it never moves back.
 * Returns the settings that were applied. `toJudge`: the company may have replacements to judge.
 * @throws LeaseLost
 */
export async function recordPage(
  db: Database,
  page: Page,
): Promise<Counts & { settings: Record<string, unknown>; toJudge: boolean }> {
  const { sync, companyId, assets } = page;
  const write = (record: typeof writeAssets) =>
    db.transaction().execute(async (tx) => {
      const { settings, toJudge, known } = await beginPage(tx, page);
      const counts = await record(tx, {
        syncId: sync.id,
        connectionId: sync.connectionId,
        companyId,
        assets,
        known,
        decide: (before, asset) => page.decide(before, asset, settings),
      });
      if (page.stillUnreadable) {
        await sql`
        DELETE FROM assets WHERE company_id = ${companyId} AND starts_with(id, ${unreadablePrefix})
          AND state = 'failed' AND media IS NULL AND NOT id = ANY(${page.stillUnreadable}::text[])`.execute(tx);
      }
      return { ...counts, settings, toJudge: toJudge || counts.setAside > 0 };
    });
  return write(writeAssets).catch((error) => {
    if (!isRefusal(error)) throw error;
    return write(writeOneByOne);
  });
}

/**
 * Extends the lease, locks the known assets of the page, and saves the position, the sightings and the high-water mark. Locks the
 * connection first and then the assets by id, so that two pages do not deadlock. Pages of one connection wait for each other at its
 * row. `toJudge`: before this page, the company had replacements that were set aside or held.
 * @throws LeaseLost
 */
async function beginPage(tx: Database, page: Page) {
  const { sync, lease, companyId, assets, highWaterMark = null, sighted = [] } = page;
  const { connectionId } = sync;
  const { rows } = await sql<LockedAsset & { settings: Record<string, unknown>; toJudge: boolean }>`
    WITH extended AS (${extending(lease)} RETURNING settings),
    advanced AS (
      UPDATE syncs SET position = position || ${positionOf(companyId, page.position)}, pages = pages + 1,
        seen = seen + ${assets.length}::int
      FROM extended WHERE id = ${sync.id}
    ), marked AS (
      UPDATE access SET high_water_mark = greatest(high_water_mark, ${highWaterMark}::bigint)
      FROM extended WHERE connection_id = ${connectionId} AND company_id = ${companyId} AND ${highWaterMark}::bigint IS NOT NULL
    ), sighted AS (
      INSERT INTO sightings (sync_id, company_id, ids)
      SELECT ${sync.id}, ${companyId}, ids FROM extended CROSS JOIN (SELECT ${sighted}::text[] AS ids) AS page
      WHERE ids <> '{}'
    ), known AS (
      SELECT a.id, a.company_id, a.connection_id, a.state, a.reason, a.skipped, a.project_id, a.asset_type, a.name, a.size, a.upload_date,
        a.listed, a.media, a.mirrored_at, a.transcript_state, a.thumbnail_state,
        ${isStranded} AS stranded,
        (SELECT coalesce(listed, '{}') FROM replacements WHERE asset_id = a.id AND released_at IS NULL) AS replacement
      FROM assets a CROSS JOIN extended WHERE a.id = ANY(${assets.map(({ id }) => id)}::text[]) ORDER BY a.id FOR UPDATE OF a
    )
    SELECT extended.settings, ${hasReplacements(connectionId, companyId)} AS to_judge, known.*
    FROM extended LEFT JOIN known ON true`.execute(tx);
  if (!rows[0]) throw leaseLost(lease);
  const known = new Map(rows.flatMap((asset) => (asset.id === null ? [] : [[asset.id, asset] as const])));
  return { settings: rows[0].settings, toJudge: rows[0].toJudge, known };
}

/** Writes a page asset by asset. If the database refuses one, the asset gets this as its reason, and is returned in `refused`. */
async function writeOneByOne(tx: Database, page: ListedPage): Promise<Counts> {
  const counts: Counts = { new: 0, changed: 0, hasWork: false, setAside: 0, refused: [] };
  /** Returns why the database refused the asset; undefined if it did not. */
  const record = async (asset: ListedAsset): Promise<unknown> => {
    await sql`SAVEPOINT one`.execute(tx);
    try {
      const one = await writeAssets(tx, { ...page, assets: [asset] });
      for (const key of ['new', 'changed', 'setAside'] as const) counts[key] += one[key];
      counts.hasWork ||= one.hasWork;
      counts.refused.push(...one.refused);
      return undefined;
    } catch (error) {
      if (!isRefusal(error)) throw error;
      await sql`ROLLBACK TO SAVEPOINT one`.execute(tx);
      return error;
    }
  };
  for (const asset of page.assets) {
    const error = await record(asset);
    if (error === undefined) continue;
    const reason: Reason = { code: 'not_recorded', error: reasonOf(error) };
    counts.refused.push({ id: asset.id, reason });
    const empty = { projectId: null, assetType: null, name: null, size: null, uploadDate: null, listed: {} };
    await record({ id: asset.id, ...empty, problem: reason });
  }
  return counts;
}

/** Whether a statement failed because of its values: data exceptions, constraints and limits (classes of SQLSTATE). */
const isRefusal = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && /^(22|23|54)/.test(error.code ?? '');
