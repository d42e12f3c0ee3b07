import { sql } from 'kysely';
import pg from 'pg';
import { reasonOf } from '../../floor/errors.ts';
import type { Reason } from '../../floor/reason-codes.ts';
import { hasReplacements } from '../companies/held-changes.ts';
import {
  type CompanyPosition,
  type Database,
  type ListedAsset,
  type Sync,
  unreadablePrefix,
} from '../database/schema.ts';
import { lockPage, positionOf, type SyncLease } from './lease.ts';
import { type Counts, type Decide, type ListedPage, recordListed } from './write-assets.ts';

/**
 * Records a page of a company's listing and the position after it, in one transaction. If the database refuses an asset,
 * the others are recorded nevertheless. `highWaterMark`: on the last page of a complete listing; it never moves back.
 * Returns the settings that were applied. `toJudge`: the company has replacements to judge.
 * @throws LeaseLost
 */
export async function recordPage(
  db: Database,
  page: {
    sync: Sync;
    lease: SyncLease;
    companyId: string;
    assets: ListedAsset[];
    decide: Decide;
    position: CompanyPosition;
    highWaterMark?: number | null;
    /** Every id on the page: a full sync finds missing assets by these at its end. */
    sighted?: string[];
    /** The generated ids of the listed items that have no readable id: the records of all other such items are deleted. */
    stillUnreadable?: string[];
  },
): Promise<Counts & { settings: Record<string, unknown>; toJudge: boolean }> {
  const { sync, lease, companyId, assets } = page;
  const { connectionId } = sync;
  const write = (record: typeof recordListed) =>
    db.transaction().execute(async (tx) => {
      const ids = assets.map(({ id }) => id);
      const { settings, known } = await lockPage(tx, lease, ids);
      const counts = await record(tx, {
        syncId: sync.id,
        connectionId,
        companyId,
        assets,
        known,
        decide: (before, asset) => page.decide(before, asset, settings),
      });
      const { rows } = await sql<{ toJudge: boolean }>`
      WITH moved AS (
        UPDATE access SET high_water_mark = greatest(high_water_mark, ${page.highWaterMark ?? null}::bigint)
        WHERE connection_id = ${connectionId} AND company_id = ${companyId} AND ${page.highWaterMark ?? null}::bigint IS NOT NULL
      ), sighted AS (
        INSERT INTO sightings (sync_id, company_id, ids)
        SELECT ${sync.id}, ${companyId}, ids FROM (SELECT ${page.sighted ?? []}::text[] AS ids) AS page WHERE ids <> '{}'
      )
      UPDATE syncs SET position = position || ${positionOf(companyId, page.position)}, pages = pages + 1,
        seen = seen + ${assets.length}::int, new = new + ${counts.new}::int, changed = changed + ${counts.changed}::int
      WHERE id = ${sync.id} RETURNING ${hasReplacements(connectionId, companyId)} AS to_judge`.execute(tx);
      if (page.stillUnreadable) {
        await sql`
        DELETE FROM assets WHERE company_id = ${companyId} AND starts_with(id, ${unreadablePrefix})
          AND state = 'failed' AND media IS NULL AND NOT id = ANY(${page.stillUnreadable}::text[])`.execute(tx);
      }
      return { ...counts, settings, toJudge: rows[0]!.toJudge };
    });
  return write(recordListed).catch((error) => {
    if (!isRefusal(error)) throw error;
    return write(recordOneByOne);
  });
}

/** Writes a page asset by asset. One that the database refuses becomes a problem of that asset, and is returned in `refused`. */
async function recordOneByOne(tx: Database, page: ListedPage): Promise<Counts> {
  const counts: Counts = { new: 0, changed: 0, again: 0, refused: [] };
  /** Returns why the database refused the asset; undefined if it did not. */
  const record = async (asset: ListedAsset): Promise<unknown> => {
    await sql`SAVEPOINT one`.execute(tx);
    try {
      const one = await recordListed(tx, { ...page, assets: [asset] });
      for (const key of ['new', 'changed', 'again'] as const) counts[key] += one[key];
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
