import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addAssetEvent } from '../events/add-event.ts';
import { type LeaseEnd, leaseRow } from './history.ts';
import { type AssetLease, inHand } from './leases.ts';

/** Still transcoding: looked at again after `waitMs`. Spends no attempt. */
export async function processing(db: Database, lease: AssetLease, waitMs: number): Promise<boolean> {
  return give(
    db,
    lease,
    {
      state: 'processing',
      reason: null,
      nextAt: inMs(waitMs),
      waits: 0,
      processingSince: sql`coalesce(processing_since, now())`,
    },
    { outcome: 'processing', waitMs },
  );
}

/** The service has no file for it, or it does not exist any more. */
export async function unavailable(db: Database, lease: AssetLease, reason: string): Promise<boolean> {
  return conclude(db, lease, 'unavailable', reason);
}

/** Comes back after `waitMs`. `spent`: it was an attempt; `putOff`: it was none, and is counted by itself. */
export async function again(
  db: Database,
  lease: AssetLease,
  waitMs: number,
  options: { spent?: boolean; putOff?: boolean; reason: string | null },
): Promise<boolean> {
  return give(
    db,
    lease,
    {
      state: sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`,
      nextAt: inMs(waitMs),
      reason: options.reason,
      ...(options.spent && { attempts: sql`attempts + 1` }),
      ...(options.putOff && { waits: sql`waits + 1` }),
    },
    { outcome: 'again', reason: options.reason, waitMs },
  );
}

/** The settings leave it out. */
export async function skip(db: Database, lease: AssetLease, rule: string, reason: string): Promise<boolean> {
  return give(
    db,
    lease,
    {
      state: 'pending',
      skipped: rule,
      reason,
      nextAt: null,
      attempts: 0,
      waits: 0,
      processingSince: null,
    },
    { outcome: 'skipped', reason },
  );
}

/** Another connection wants it, and this one does not. */
export async function handOver(db: Database, lease: AssetLease, connectionId: string): Promise<boolean> {
  return give(
    db,
    lease,
    {
      connectionId,
      state: sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`,
      nextAt: sql`now()`,
    },
    { outcome: 'handed over' },
  );
}

export async function failed(db: Database, lease: AssetLease, reason: string): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const done = await conclude(tx, lease, 'failed', reason);
    if (done) await addAssetEvent(tx, 'asset.failed', lease.assetId, { reason });
    return done;
  });
}

/** The media is to be looked at again: another version, or none. */
export async function startOver(db: Database, lease: AssetLease): Promise<boolean> {
  return give(
    db,
    lease,
    { state: 'pending', nextAt: sql`now()`, attempts: 0, waits: 0, reason: null },
    { outcome: 'started over' },
  );
}

/** Transcript and thumbnail that are still missing are given up; the media stays as it is. */
export async function giveUpSidecars(db: Database, lease: AssetLease, reason: string): Promise<boolean> {
  return give(
    db,
    lease,
    {
      nextAt: sql`CASE WHEN revision <> ${lease.revision}::int THEN now() END`,
      attempts: 0,
      waits: 0,
      reason,
      transcriptState: sql`CASE transcript_state WHEN 'pending' THEN 'gave_up' ELSE transcript_state END`,
      thumbnailState: sql`CASE thumbnail_state WHEN 'pending' THEN 'gave_up' ELSE thumbnail_state END`,
    },
    { outcome: 'gave up', reason },
  );
}

/**
 * Writes what a worker found, if the lease is still its own, and gives the asset back; with it what happened in the lease.
 * False: it is not.
 */
async function give(
  db: Database,
  lease: AssetLease,
  values: Record<string, unknown>,
  outcome: LeaseEnd,
): Promise<boolean> {
  const given = db
    .updateTable('assets')
    .set({ queuedAt: null, leaseUntil: null, ...values })
    .where(inHand(lease))
    .returning(['id', 'syncId']);
  const { numAffectedRows } = await sql`WITH given AS (${given}) ${leaseRow(lease, outcome)}`.execute(db);
  return (numAffectedRows ?? 0n) > 0n;
}

/** The last word on an asset, unless a listing has changed it since the lease began: then it is looked at again at once. */
async function conclude(
  db: Database,
  lease: AssetLease,
  state: 'unavailable' | 'failed',
  reason: string,
): Promise<boolean> {
  const since = sql`revision = ${lease.revision}::int`;
  const values = {
    state: sql`CASE WHEN ${since} THEN ${state} ELSE 'pending' END`,
    reason,
    nextAt: sql`CASE WHEN ${since} THEN NULL ELSE now() END`,
    attempts: state === 'failed' ? sql`CASE WHEN ${since} THEN attempts + 1 ELSE 0 END` : 0,
    waits: 0,
    processingSince: null,
  };
  return give(db, lease, values, { outcome: state, reason });
}
