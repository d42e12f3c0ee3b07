import { sql } from 'kysely';
import type { Database, HistoryEntry, Outcome, Step } from '../database/schema.ts';

/** So many steps of a lease are told: a file that breaks off again and again has more to tell than anybody reads. */
const mostSteps = 60;
/** So many history of an asset are told, the last ones; about as many are kept (prune.ts). */
const mostTold = 200;

/** What a worker has done with an asset since its lease began; written together with what came of it. */
export interface StepLog {
  /** By the database's clock. */
  began: Date;
  /** The same by the monotonic clock. */
  startedAt: number;
  steps: Step[];
  more: number;
}

export function newStepLog(began: Date): StepLog {
  return { began, startedAt: performance.now(), steps: [], more: 0 };
}

/** The time by the database's clock, in epoch ms, as far as a worker knows without asking: compare stored times with this. */
export function databaseTime({ stepLog }: { stepLog: StepLog }): number {
  return stepLog.began.getTime() + performance.now() - stepLog.startedAt;
}

/** Adds a step: what was done, or met. No links and no tokens. */
export function note({ stepLog }: { stepLog: StepLog }, did: Step['did'], facts: Omit<Step, 'ms' | 'did'> = {}): void {
  if (stepLog.steps.length < mostSteps)
    stepLog.steps.push({ ms: Math.round(performance.now() - stepLog.startedAt), did, ...facts });
  else stepLog.more++;
}

/** What came of a lease. */
export interface LeaseEnd {
  outcome: Outcome;
  reason?: string | null;
  /** Comes back after so long. */
  waitMs?: number | null;
}

/** What is told of a lease that ends now. */
export function told(lease: { stepLog: StepLog }, outcome: LeaseEnd) {
  const { startedAt, steps, more } = lease.stepLog;
  const { waitMs } = outcome;
  return {
    outcome: outcome.outcome,
    ...(outcome.reason && { reason: outcome.reason }),
    ...(typeof waitMs === 'number' && { nextAt: new Date(databaseTime(lease) + waitMs) }),
    ms: Math.round(performance.now() - startedAt),
    ...(steps.length > 0 && { steps }),
    ...(more > 0 && { more }),
  };
}

/** The row of a lease that ends, for the assets of the statement's table `given`: that one, if the lease was still its own. */
export const leaseRow = (lease: { stepLog: StepLog }, outcome: LeaseEnd) => sql`
  INSERT INTO asset_history (asset_id, at, kind, sync_id, data)
  SELECT id, ${lease.stepLog.began}::timestamptz, 'attempt', sync_id, ${JSON.stringify(told(lease, outcome))}::jsonb FROM given`;

/** The last of what happened to an asset, oldest first, and whether there was more. */
export async function ofAsset(db: Database, assetId: string): Promise<{ rows: HistoryEntry[]; more: boolean }> {
  const rows = await db
    .selectFrom('assetHistory')
    .select(['at', 'kind', 'syncId', 'data'])
    .where('assetId', '=', assetId)
    .orderBy('id', 'desc')
    .limit(mostTold + 1)
    .execute();
  return { rows: rows.slice(0, mostTold).reverse(), more: rows.length > mostTold };
}
