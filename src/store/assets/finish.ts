import { type RawBuilder, sql } from 'kysely';
import type { Reason, SkippedByFilter } from '../../floor/reason-codes.ts';
import { reasonFields } from '../../floor/reasons.ts';
import { jsonb } from '../database/jsonb.ts';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';
import { historyEntry, type LeaseEnd } from './history.ts';
import { type AssetLease, stillLeased } from './leases.ts';
import { hasValidFile } from './stored-file.ts';

const notTransferring = sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`;

/** A listing has not changed it since the lease began. */
const isUnchanged = ({ revision }: AssetLease) => sql`revision = ${revision}::int`;

/** Due after `waitMs`, or at once if a listing has changed it. */
const dueAfter = (lease: AssetLease, waitMs: number) =>
  sql`CASE WHEN ${isUnchanged(lease)} THEN ${inMs(waitMs)} ELSE now() END`;

/** The library still transcodes it: due again after `waitMs`, without spending an attempt. */
export async function processing(db: Database, lease: AssetLease, waitMs: number): Promise<boolean> {
  const values = sql`state = 'processing', reason = NULL, next_at = ${dueAfter(lease, waitMs)}, waits = 0,
    processing_since = coalesce(processing_since, now())`;
  return endLease(db, lease, values, { outcome: 'processing', waitMs });
}

/** The library has no file for it. A stored file stays mirrored, so that it is verified like others. */
export async function unavailable(db: Database, lease: AssetLease, reason: Reason): Promise<boolean> {
  return endForGood(db, lease, 'unavailable', reason);
}

export async function failed(db: Database, lease: AssetLease, reason: Reason): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const isEnded = await endForGood(tx, lease, 'failed', reason);
    const { rows } = await sql<{ connectionId: string | null }>`
      SELECT connection_id FROM assets WHERE id = ${lease.assetId} AND state = 'failed'`.execute(tx);
    const [asset] = rows;
    // Otherwise a listing has changed it meanwhile, and it is tried again.
    if (isEnded && asset) {
      const { connectionId } = asset;
      await addEvent(tx, { kind: 'asset.failed', connectionId, assetId: lease.assetId, data: reasonFields(reason) });
    }
    return isEnded;
  });
}

/** Due again after `waitMs`. `spent`: counts as an attempt; `waits`: how often it was postponed in a row. */
export async function retryLater(
  db: Database,
  lease: AssetLease,
  waitMs: number,
  options: { spent?: boolean; waits?: number; reason: Reason | null },
): Promise<boolean> {
  const values = sql`state = ${notTransferring}, next_at = ${dueAfter(lease, waitMs)}, reason = ${jsonb(options.reason)},
    attempts = attempts + ${options.spent ? 1 : 0}::int, waits = ${options.waits ?? sql`waits`}`;
  return endLease(db, lease, values, { outcome: 'again', reason: options.reason, waitMs });
}

/** A filter skips it. */
export async function skip(db: Database, lease: AssetLease, reason: SkippedByFilter): Promise<boolean> {
  const values = sql`state = 'pending', reason = ${jsonb(reason)}, next_at = NULL, attempts = 0, waits = 0,
    processing_since = NULL`;
  return endLease(db, lease, values, { outcome: 'skipped', reason });
}

/** The filters of this connection skip it, but not those of another connection, which begins to mirror it: see skip-by-filter.ts. */
export async function handOver(db: Database, lease: AssetLease, connectionId: string): Promise<boolean> {
  const values = sql`connection_id = ${connectionId}, state = ${notTransferring}, next_at = now(), attempts = 0, waits = 0,
    reason = NULL`;
  return endLease(db, lease, values, { outcome: 'handed_over' });
}

/** Records that the library has another file: the next sync decides whether it may replace the stored one. Does not end the lease. */
export async function setAside(db: Database, lease: AssetLease): Promise<boolean> {
  const { rows } = await sql`
    WITH leased AS (SELECT id, company_id FROM assets WHERE ${stillLeased(lease)} FOR UPDATE), aside AS (
      INSERT INTO replacements AS old (asset_id, company_id) SELECT id, company_id FROM leased
      ON CONFLICT (asset_id) DO UPDATE SET listed = NULL, sync_id = NULL, found_at = now(), released_at = NULL
        WHERE old.released_at IS NOT NULL
    )
    SELECT FROM leased`.execute(db);
  return rows.length > 0;
}

/** The media must be handled again. */
export async function startOver(db: Database, lease: AssetLease): Promise<boolean> {
  const values = sql`state = 'pending', next_at = now(), attempts = 0, waits = 0, reason = NULL`;
  return endLease(db, lease, values, { outcome: 'started_over' });
}

/** Gives up pending sidecars, unless a listing has requested them since the lease began; the next full sync tries again. */
const withoutPendingSidecars = (lease: AssetLease) => sql`
    transcript_state = CASE WHEN transcript_state = 'pending' AND ${isUnchanged(lease)} THEN 'gave_up' ELSE transcript_state END,
    thumbnail_state = CASE WHEN thumbnail_state = 'pending' AND ${isUnchanged(lease)} THEN 'gave_up' ELSE thumbnail_state END`;

/** Gives up a missing transcript and thumbnail; the media stays as it is. */
export async function giveUpSidecars(db: Database, lease: AssetLease, reason: Reason): Promise<boolean> {
  const values = sql`next_at = CASE WHEN NOT ${isUnchanged(lease)} THEN now() END,
    attempts = 0, waits = 0, reason = ${jsonb(reason)}, ${withoutPendingSidecars(lease)}`;
  return endLease(db, lease, values, { outcome: 'gave_up', reason });
}

/** Nothing more is due for the asset, unless a listing has changed it since the lease began: then it is due at once. */
async function endForGood(
  db: Database,
  lease: AssetLease,
  state: 'unavailable' | 'failed',
  reason: Reason,
): Promise<boolean> {
  const unchanged = isUnchanged(lease);
  const attempts = state === 'failed' ? sql`CASE WHEN ${unchanged} THEN attempts + 1 ELSE 0 END` : sql`0`;
  const end =
    state === 'failed'
      ? sql`'failed'`
      : sql`CASE WHEN ${hasValidFile('assets')} THEN 'mirrored' ELSE 'unavailable' END`;
  const values = sql`state = CASE WHEN ${unchanged} THEN ${end} ELSE 'pending' END, reason = ${jsonb(reason)},
    next_at = CASE WHEN ${unchanged} THEN NULL ELSE now() END, attempts = ${attempts}, waits = 0, processing_since = NULL,
    ${withoutPendingSidecars(lease)}`;
  return endLease(db, lease, values, { outcome: state, reason });
}

/** Ends a lease with these values and adds it to the history of the asset. False if the worker had lost it. */
async function endLease(
  db: Database,
  lease: AssetLease,
  values: RawBuilder<unknown>,
  outcome: LeaseEnd,
): Promise<boolean> {
  const entry = jsonb(historyEntry(lease, outcome));
  const result = await sql`
    WITH ended AS (
      UPDATE assets SET queued_at = NULL, lease_until = NULL, ${values} WHERE ${stillLeased(lease)} RETURNING id, sync_id)
    INSERT INTO asset_history (asset_id, at, kind, sync_id, data)
    SELECT id, ${lease.stepLog.began}::timestamptz, 'attempt', sync_id, ${entry} FROM ended`.execute(db);
  return wroteAny(result);
}
