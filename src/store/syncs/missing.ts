import { sql } from 'kysely';
import { clockToleranceMs } from '../../floor/clock.ts';
import type { HeldChanges } from '../../floor/held-changes.ts';
import type { ListingDoubt, Reason } from '../../floor/reason-codes.ts';
import { notLeased } from '../assets/leases.ts';
import { setHeld } from '../companies/held-changes.ts';
import { jsonb } from '../database/jsonb.ts';
import { type Database, unreadablePrefix } from '../database/schema.ts';
import { type CompanyRun, positionOf, underLease } from './lease.ts';

/**
 * Assets of the connection that a complete listing should have: other connections may see more. An asset that was first seen
 * in the future was recorded while the clock was ahead.
 */
const known = ({ sync, companyId }: CompanyRun) => sql`
    a.connection_id = ${sync.connectionId} AND a.company_id = ${companyId} AND a.state <> 'gone'
      AND (a.first_seen_at < ${sync.startedAt} OR a.first_seen_at > now() + ${clockToleranceMs} * interval '1 ms') AND NOT starts_with(a.id, ${unreadablePrefix})`;

/** Ids on the pages of the listing. */
const sighted = ({ sync, companyId }: CompanyRun) => sql`
    (SELECT DISTINCT unnest(ids) AS id FROM sightings WHERE sync_id = ${sync.id} AND company_id = ${companyId})`;

const goneReason = (inBucket: boolean) => jsonb<Reason>({ code: 'gone', inBucket });

/** How many of the known assets the listing lacks. */
export async function count(db: Database, company: CompanyRun): Promise<Omit<HeldChanges, 'sample'>> {
  const { rows } = await sql<Omit<HeldChanges, 'sample'>>`
    SELECT count(*) AS known, count(*) FILTER (WHERE s.id IS NULL) AS count
    FROM assets a LEFT JOIN ${sighted(company)} s ON s.id = a.id WHERE ${known(company)}`.execute(db);
  return rows[0]!;
}

/** A page of the ids of assets that the listing lacks, in order. */
export async function page(
  db: Database,
  company: CompanyRun,
  page: { after: string; limit: number },
): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT a.id FROM assets a LEFT JOIN ${sighted(company)} s ON s.id = a.id
    WHERE ${known(company)} AND s.id IS NULL AND a.id > ${page.after}
    ORDER BY a.id LIMIT ${page.limit}`.execute(db);
  return rows.map((row) => row.id);
}

/**
 * Marks missing assets as gone: nothing more is due for them, and their objects stay. Leased assets are left alone. Returns
 * how many are gone.
 * @throws LeaseLost
 */
export async function markGone(db: Database, company: CompanyRun, ids: string[]): Promise<number> {
  if (ids.length === 0) return 0;
  return underLease(db, company, async (tx) => {
    const { rows } = await sql<{ count: number }>`
      WITH lacking AS (
        SELECT a.id FROM assets a
        WHERE a.id = ANY(${ids}::text[]) AND ${known(company)} AND ${notLeased}
        ORDER BY a.id FOR UPDATE
      ), changed AS (
        UPDATE assets SET state = 'gone', next_at = NULL, queued_at = NULL, lease = lease + 1, lease_until = NULL,
          revision = revision + 1, attempts = 0, waits = 0, processing_since = NULL,
          reason = CASE WHEN media IS NULL THEN ${goneReason(false)} ELSE ${goneReason(true)} END
        FROM lacking WHERE assets.id = lacking.id RETURNING assets.id
      ), withdrawn AS (
        DELETE FROM replacements USING changed WHERE asset_id = changed.id AND released_at IS NULL
      ), logged AS (
        INSERT INTO events (kind, connection_id, asset_id)
        SELECT 'asset.gone', ${company.sync.connectionId}, id FROM changed
      )
      SELECT count(*) AS count FROM changed`.execute(tx);
    const { count } = rows[0]!;
    await sql`UPDATE syncs SET gone = gone + ${count}::int WHERE id = ${company.sync.id}`.execute(tx);
    return count;
  });
}

/**
 * Saves the assets that no page listed, but that the library still has: a resumed run does not request them again.
 * @throws LeaseLost
 */
export async function addSighted(db: Database, company: CompanyRun, ids: string[]): Promise<void> {
  if (ids.length === 0) return;
  const { sync, companyId } = company;
  await underLease(db, company, (tx) =>
    tx.insertInto('sightings').values({ syncId: sync.id, companyId, ids }).execute(),
  );
}

/**
 * Ends the listing of a company. `held`: the missing assets, if they are too many to be marked as gone without an operator;
 * `doubt`: why the listing may have ended too early. After such a listing, and while assets are held, none is removed because it was
 * not listed. True if there were no held assets before.
 * @throws LeaseLost
 */
export async function endListing(
  db: Database,
  company: CompanyRun,
  { held, doubt }: { held: HeldChanges | undefined; doubt: ListingDoubt | undefined },
): Promise<boolean> {
  const { sync, companyId } = company;
  return underLease(db, company, async (tx) => {
    await tx.deleteFrom('sightings').where('syncId', '=', sync.id).where('companyId', '=', companyId).execute();
    await sql`
      UPDATE access SET listed_at = ${doubt || held ? null : sql`now()`}
      WHERE connection_id = ${sync.connectionId} AND company_id = ${companyId}`.execute(tx);
    await sql`UPDATE syncs SET position = position || ${positionOf(companyId, { done: true, doubt })} WHERE id = ${sync.id}`.execute(
      tx,
    );
    return setHeld(tx, { connectionId: sync.connectionId, companyId }, 'missing', held);
  });
}
