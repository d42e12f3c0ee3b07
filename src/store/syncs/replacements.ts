import { sql } from 'kysely';
import { type HeldChanges, sampleSize } from '../../floor/held-changes.ts';
import { setHeld } from '../companies/held-changes.ts';
import type { Database } from '../database/schema.ts';
import { type CompanyRun, underLease } from './lease.ts';

/** Replacements within this time count together, so that many syncs may not replace more files than one sync may. */
const windowHours = 24;

const inWindow = sql`(r.released_at IS NULL OR r.released_at > now() - ${windowHours}::int * interval '1 hour')`;

/** Since when a replacement of an asset waits: it is set aside or held. Undefined: none waits. */
export async function since(db: Database, assetId: string): Promise<Date | undefined> {
  const { rows } = await sql<{ foundAt: Date }>`
    SELECT found_at FROM replacements WHERE asset_id = ${assetId} AND released_at IS NULL`.execute(db);
  return rows[0]?.foundAt;
}

/**
 * How many of a company's mirrored assets wait to be replaced, or were replaced within `windowHours`, with a sample of the
 * waiting ones. Replacements that an operator has accepted do not count. `until`: those that are found later are not counted.
 */
export async function count(db: Database, { companyId }: CompanyRun) {
  const { rows } = await sql<HeldChanges & { until: string }>`
    WITH counted AS (
      SELECT r.asset_id, r.released_at, a.state FROM replacements r JOIN assets a ON a.id = r.asset_id
      WHERE r.company_id = ${companyId} AND ${inWindow}
    ), mirrored AS (
      SELECT assets FROM asset_counts WHERE company_id = ${companyId} AND state = 'mirrored' UNION ALL
      SELECT assets FROM asset_count_changes WHERE company_id = ${companyId} AND state = 'mirrored'
    )
    -- As text, because a Date has no microseconds.
    SELECT now()::text AS until, (SELECT count(*) FROM counted) AS count,
      -- Assets that are being replaced count, too, although they are not mirrored now.
      ((SELECT coalesce(sum(assets), 0) FROM mirrored)
        + (SELECT count(*) FROM counted WHERE state <> 'mirrored'))::bigint AS known,
      ARRAY(SELECT asset_id FROM counted WHERE released_at IS NULL ORDER BY asset_id LIMIT ${sampleSize}) AS sample`.execute(
    db,
  );
  return rows[0]!;
}

/**
 * Releases up to `limit` replacements that were set aside, so that the listed files are due. Returns how many. `which`:
 * - `own`: those that this sync found;
 * - `settled`: also those that follow-up checks found, or syncs that no longer run;
 * - `all`.
 * `until`: only what was found by then.
 * @throws LeaseLost
 */
export async function release(
  db: Database,
  company: CompanyRun,
  { which, until, limit }: { which: 'own' | 'settled' | 'all'; until: string | Date; limit: number },
): Promise<number> {
  const { sync, companyId } = company;
  // The sync that found it still runs, and may find more.
  const isOpen = sql`EXISTS (SELECT FROM syncs s JOIN connections c ON c.id = s.connection_id
    WHERE s.id = r.sync_id AND s.status = 'running' AND c.status = 'active')`;
  const isOwn = sql`r.sync_id = ${sync.id}`;
  const chosen = {
    own: isOwn,
    settled: sql`(${isOwn} OR NOT ${isOpen})`,
    all: sql`true`,
  }[which];
  return underLease(db, company, async (tx) => {
    const { rows } = await sql<{ count: number }>`
      WITH chosen AS (
        SELECT a.id, r.listed FROM replacements r JOIN assets a ON a.id = r.asset_id
        WHERE r.company_id = ${companyId} AND r.released_at IS NULL AND a.state <> 'gone'
          AND r.found_at <= ${until}::timestamptz AND ${chosen}
        ORDER BY a.id LIMIT ${limit} FOR UPDATE OF a
      ), changed AS (
        UPDATE assets AS a SET state = 'pending', reason = NULL, revision = a.revision + 1, next_at = now(), attempts = 0,
          waits = 0, processing_since = NULL, sync_id = ${sync.id},
          (project_id, asset_type, name, size, upload_date, listed) = (
            SELECT project_id, asset_type, name, size, upload_date, listed
            FROM jsonb_to_record(CASE WHEN chosen.listed IS NULL
              THEN to_jsonb(a) ELSE jsonb_build_object('project_id', chosen.listed->'projectId',
                'asset_type', chosen.listed->'assetType', 'name', chosen.listed->'name', 'size', chosen.listed->'size',
                'upload_date', chosen.listed->'uploadDate', 'listed', chosen.listed->'listed') END)
              AS now (project_id text, asset_type text, name text, size bigint, upload_date bigint, listed jsonb))
        FROM chosen WHERE a.id = chosen.id RETURNING a.id
      ), released AS (
        UPDATE replacements SET released_at = now() FROM changed WHERE asset_id = changed.id
      ), logged AS (
        INSERT INTO asset_history (asset_id, kind, sync_id, data)
        SELECT id, 'listed', ${sync.id}, '{"news": "changed", "state": "pending", "due": true, "replacement": "released"}'
        FROM changed
      )
      SELECT count(*) AS count FROM changed`.execute(tx);
    return rows[0]!.count;
  });
}

/** Forgets the released replacements of a company, so that they no longer count. @throws LeaseLost */
export async function forgetReleased(db: Database, company: CompanyRun): Promise<void> {
  await underLease(db, company, (tx) =>
    sql`DELETE FROM replacements WHERE company_id = ${company.companyId} AND released_at IS NOT NULL`.execute(tx),
  );
}

/** Saves whether the replacements of a company are held. True if they are held from now on. @throws LeaseLost */
export async function saveHeld(db: Database, company: CompanyRun, held: HeldChanges | undefined): Promise<boolean> {
  const { sync, companyId } = company;
  return underLease(db, company, (tx) => setHeld(tx, { connectionId: sync.connectionId, companyId }, 'replaced', held));
}

/** Deletes replacements that no longer count. */
export async function pruneReplacements(db: Database): Promise<void> {
  await sql`DELETE FROM replacements AS r WHERE NOT ${inWindow}`.execute(db);
}
