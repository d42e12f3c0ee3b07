import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import type { Asset, OwnedAsset, SidecarStates } from '../database/schema.ts';
import { newStepLog, type StepLog } from './history.ts';

/**
 * A worker's lease of an asset. `number` is the fencing token: writes are refused once another worker has the next lease.
 * `revision`, `size` and `uploadDate` are as they were when the lease began; a listing may have changed them since.
 */
export interface AssetLease {
  assetId: string;
  number: number;
  revision: number;
  size: number | null;
  uploadDate: number | null;
  stepLog: StepLog;
}

export function leaseOf(asset: Asset & Pick<OwnedAsset, 'leasedAt'>): AssetLease {
  const { id, lease, revision, size, uploadDate, leasedAt } = asset;
  return { assetId: id, number: lease, revision, size, uploadDate, stepLog: newStepLog(leasedAt) };
}

/** The worker still has its lease. */
export const stillLeased = ({ assetId, number }: AssetLease) =>
  sql<boolean>`id = ${assetId} AND lease = ${number}::int AND lease_until IS NOT NULL`;

/** No worker has a lease. An asset may be leased although it is not queued: it leaves the queue when its connection waits. */
export const notLeased = sql<boolean>`(lease_until IS NULL OR lease_until < now())`;

/**
 * An asset has a job on the queue. Written as a range: with IS NOT NULL, PostgreSQL may read all assets of a connection that has no
 * statistics yet, even with the settings below.
 */
export const isQueued = sql<boolean>`queued_at > '-infinity'`;

/**
 * Settings of the planner for one transaction, as columns of its first SELECT. Without sorts, PostgreSQL can only use the index
 * that has the order of a subquery. Otherwise it could read all assets of a new connection, because it has no statistics about
 * it. A bitmap scan would read the index entries of all assets that were queued before, until a vacuum removes them.
 */
export const inIndexOrder = sql`
  set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
  set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`;

/** An asset has something due, and its connection may work on it now. */
export const workable = sql`(assets.next_at IS NOT NULL AND EXISTS (
  SELECT 1 FROM connections c JOIN access a ON a.connection_id = c.id
  WHERE c.id = assets.connection_id AND c.status = 'active' AND (c.delayed_until IS NULL OR c.delayed_until <= now())
    AND a.company_id = assets.company_id AND a.lost_at IS NULL))`;

/** For the row `a` of `assets`: no connection can read its company. */
export const isStranded = sql<boolean>`NOT EXISTS (
  SELECT FROM access x JOIN connections c ON c.id = x.connection_id
  WHERE x.company_id = a.company_id AND x.lost_at IS NULL AND c.status <> 'disconnected')`;

/** What the bucket has of an asset. `waitMs`: until its next follow-up check; null: none is due. */
export interface Mirrored extends SidecarStates {
  detail: Record<string, unknown>;
  recordKey: string;
  waitMs: number | null;
  /** Follow-up checks so far; 0: none, or all have ended. */
  followUps: number;
  reason?: Reason | null;
}
