import type { Reason } from '../../floor/reason-codes.ts';
import type { Database, HistoryEntry, LeaseOutcome, Step } from '../database/schema.ts';

/** Maximum of steps kept of a lease: a download that fails repeatedly has more than are useful. */
const mostSteps = 60;
/** Maximum of entries shown for an asset; about as many are kept (prune.ts). */
const mostEntries = 200;

/** What a worker did with an asset since its lease began. Written when the lease ends. */
export interface StepLog {
  /** By the database's clock. */
  began: Date;
  /** The time of `began` by the monotonic clock. */
  startedAt: number;
  steps: Step[];
  more: number;
}

export function newStepLog(began: Date): StepLog {
  return { began, startedAt: performance.now(), steps: [], more: 0 };
}

/** The database's time in epoch ms, estimated without asking it. Compare stored times with this. */
export function databaseTime({ stepLog }: { stepLog: StepLog }): number {
  return stepLog.began.getTime() + performance.now() - stepLog.startedAt;
}

/** Adds a step. `facts` must have no links and no tokens. */
export function note({ stepLog }: { stepLog: StepLog }, did: Step['did'], facts: Omit<Step, 'ms' | 'did'> = {}): void {
  if (stepLog.steps.length < mostSteps)
    stepLog.steps.push({ ms: Math.round(performance.now() - stepLog.startedAt), did, ...facts });
  else stepLog.more++;
}

/** How a lease ended. */
export interface LeaseEnd {
  outcome: LeaseOutcome;
  reason?: Reason | null;
  /** Until the next attempt or check. */
  waitMs?: number | null;
}

/** The history entry of a lease that ends now. */
export function historyEntry(lease: { stepLog: StepLog }, outcome: LeaseEnd) {
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

/** The latest history of an asset, oldest first. `more`: there are earlier entries. */
export async function ofAsset(db: Database, assetId: string): Promise<{ rows: HistoryEntry[]; more: boolean }> {
  const rows = await db
    .selectFrom('assetHistory')
    .select(['at', 'kind', 'syncId', 'data'])
    .where('assetId', '=', assetId)
    .orderBy('id', 'desc')
    .limit(mostEntries + 1)
    .execute();
  return { rows: rows.slice(0, mostEntries).reverse(), more: rows.length > mostEntries };
}
