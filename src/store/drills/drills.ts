import { randomUUID } from 'node:crypto';
import { type RawBuilder, sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { reasonFields } from '../../floor/reasons.ts';
import { dayMs } from '../../floor/units.ts';
import { jsonb } from '../database/jsonb.ts';
import { wroteAny } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';
import { doIfDue } from '../settings/chores.ts';
import { type DrillReport, failureText } from './drill-report.ts';

/** A restore drill. `error`: why the drill, or its last attempt, failed. */
export interface Drill {
  id: string;
  /** How many assets are read. */
  sample: number;
  /** The schedule requested it. */
  scheduled: boolean;
  status: 'waiting' | 'running' | 'passed' | 'failed';
  error: Reason | null;
  report: DrillReport | null;
  /** The key of the report in the bucket. */
  key: string | null;
  requestedAt: Date;
  startedAt: Date | null;
  finishedAt: Date | null;
}

/** Finished drills to keep: almost two years of weekly drills. */
const kept = 100;
/** An attempt also ends when its process dies, as when a damaged record takes all its memory. */
const mostAttempts = 3;

const columns = sql`id, sample, scheduled, status, error, report, key, requested_at, started_at, finished_at`;

/** Requests a drill, and returns its id, or that of one that waits already. */
export async function request(db: Database, { sample, scheduled = false }: { sample: number; scheduled?: boolean }) {
  const { rows } = await sql<{ id: string }>`
    INSERT INTO drills (id, sample, scheduled, status) VALUES (${randomUUID()}, ${sample}, ${scheduled}, 'waiting')
    ON CONFLICT (status) WHERE status = 'waiting' DO UPDATE SET sample = greatest(drills.sample, excluded.sample)
    RETURNING id`.execute(db);
  await sql`
    DELETE FROM drills WHERE id IN (
      SELECT id FROM drills WHERE finished_at IS NOT NULL ORDER BY finished_at DESC OFFSET ${kept})`.execute(db);
  return rows[0]!.id;
}

/** Requests the scheduled drill if it is due: the first one a day after the first connection. True in one process. */
export async function requestIfDue(db: Database, intervalMs: number, sample: number): Promise<boolean> {
  return doIfDue(db, { name: 'drill', everyMs: intervalMs, firstMs: Math.min(intervalMs, dayMs) }, async (tx) => {
    await request(tx, { sample, scheduled: true });
  });
}

/** Leases the interrupted or waiting drill to `owner`: an attempt. Undefined: another process has it, or there is none. */
export async function take(db: Database, owner: string, leaseMs: number): Promise<Drill | undefined> {
  const { rows } = await sql<Drill>`
    UPDATE drills SET status = 'running', attempts = attempts + 1, started_at = now(), owner = ${owner},
      until = ${inMs(leaseMs)}
    WHERE id = (
      SELECT id FROM drills WHERE status IN ('waiting', 'running')
      ORDER BY status = 'waiting', requested_at LIMIT 1 FOR UPDATE)
      AND (until IS NULL OR until < now())
    RETURNING ${columns}`.execute(db);
  return rows[0];
}

/** Extends the lease. False if it is lost. */
export async function renew(db: Database, id: string, owner: string, leaseMs: number): Promise<boolean> {
  return wroteAny(
    await sql`UPDATE drills SET until = ${inMs(leaseMs)} WHERE id = ${id} AND owner = ${owner}`.execute(db),
  );
}

/** Releases the lease at a shutdown, which is no attempt; another process begins again. */
export async function release(db: Database, id: string, owner: string): Promise<void> {
  await sql`
    UPDATE drills SET attempts = attempts - 1, owner = NULL, until = NULL
    WHERE id = ${id} AND owner = ${owner}`.execute(db);
}

/** Ends it with its report, which is in the bucket at `key`. False: the lease is lost. */
export async function finish(db: Database, owner: string, report: DrillReport, key: string): Promise<boolean> {
  const { id, passed } = report;
  return db.transaction().execute(async (tx) => {
    const result = await sql`
      UPDATE drills SET status = ${passed ? 'passed' : 'failed'}, report = ${jsonb(report)}, key = ${key},
        error = NULL, owner = NULL, until = NULL, finished_at = now()
      WHERE id = ${id} AND owner = ${owner}`.execute(tx);
    if (!wroteAny(result)) return false;
    const { recovery, failures } = report;
    const data = passed
      ? { drillId: id, recordsMs: recovery.recordsMs, mediaMs: recovery.mediaMs }
      : { drillId: id, reason: failures.map(failureText).join('; '), failures };
    await addEvent(tx, { kind: passed ? 'drill.passed' : 'drill.failed', data });
    return true;
  });
}

/** An attempt failed. It is tried again after `waitMs`; after several, the drill has failed. Returns whether it has. */
export async function attemptFailed(
  db: Database,
  { id, owner, error, waitMs }: { id: string; owner: string; error: Reason; waitMs: number },
): Promise<boolean> {
  const isOwn = sql`id = ${id} AND owner = ${owner}`;
  if (await endAfterLastAttempt(db, isOwn, error)) return true;
  await sql`UPDATE drills SET error = ${jsonb(error)}, owner = NULL, until = ${inMs(waitMs)} WHERE ${isOwn}`.execute(
    db,
  );
  return false;
}

/** Ends the drill whose process died in the last attempt. Returns its id. */
export async function failAbandoned(db: Database): Promise<string | undefined> {
  return endAfterLastAttempt(db, sql`owner IS NOT NULL AND until < now()`, {
    code: 'process_died',
    attempt: mostAttempts,
  });
}

async function endAfterLastAttempt(
  db: Database,
  which: RawBuilder<unknown>,
  error: Reason,
): Promise<string | undefined> {
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<{ id: string }>`
      UPDATE drills SET status = 'failed', error = ${jsonb(error)}, owner = NULL, until = NULL, finished_at = now()
      WHERE status = 'running' AND attempts >= ${mostAttempts} AND ${which} RETURNING id`.execute(tx);
    const [ended] = rows;
    if (ended) await addEvent(tx, { kind: 'drill.failed', data: { drillId: ended.id, ...reasonFields(error) } });
    return ended?.id;
  });
}

export async function get(db: Database, id: string): Promise<Drill | undefined> {
  const { rows } = await sql<Drill>`SELECT ${columns} FROM drills WHERE id = ${id}`.execute(db);
  return rows[0];
}

/** The newest first. */
export async function list(db: Database, limit: number): Promise<Drill[]> {
  const { rows } = await sql<Drill>`
    SELECT ${columns} FROM drills ORDER BY requested_at DESC, id LIMIT ${limit}`.execute(db);
  return rows;
}

/** When the last drill ended; before the first one, when the first user connected. Null: nobody has. */
export async function lastEndedAt(db: Database): Promise<Date | null> {
  const { rows } = await sql<{ at: Date | null }>`
    SELECT coalesce((SELECT max(finished_at) FROM drills), (SELECT min(connected_at) FROM connections)) AS at`.execute(
    db,
  );
  return rows[0]!.at;
}

/** The drills that ended in a period, oldest first. */
export async function endedIn(db: Database, from: Date, to: Date): Promise<Drill[]> {
  const { rows } = await sql<Drill>`
    SELECT ${columns} FROM drills WHERE finished_at >= ${from} AND finished_at < ${to} ORDER BY finished_at`.execute(
    db,
  );
  return rows;
}

/** The one that ended last. */
export async function last(db: Database) {
  const { rows } = await sql<Drill & { finishedAt: Date }>`
    SELECT ${columns} FROM drills WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1`.execute(db);
  return rows[0];
}
