import { sql } from 'kysely';
import { fold } from '../assets/counting.ts';
import * as chores from '../settings/chores.ts';
import { rowsWritten } from './results.ts';
import type { Database } from './schema.ts';

/** How long what happened is remembered, in days. */
export const remembered = {
  /** Runs that found nothing new, changed or wrong: with an interval of five minutes 288 a day and connection. */
  quietSyncs: 1,
  syncs: 30,
  events: 30,
  /** What happened to assets. */
  history: 30,
};

export interface Pruned {
  syncs: number;
  events: number;
  history: number;
  states: number;
}

/** So long nobody else begins, when a process ends in the middle. */
const leaseMs = 600_000;
/** So many events at a time. */
const batch = 10_000;
/** So many history of an asset are kept. */
const mostOfAsset = 200;

/**
 * Forgets runs and events by their age: of each kind the last one of its connection, or of its asset, stays. And states of
 * connect attempts that have expired. One process at a time; undefined: another is at it.
 */
export async function prune(db: Database): Promise<Pruned | undefined> {
  // No lock of the session: behind a pooler the next statement may be in another one, and the lock would stay.
  if (!(await chores.take(db, 'prune', leaseMs))) return undefined;
  try {
    await pruneSessions(db);
    await pruneCounts(db);
    await pruneDeliveries(db, remembered.events);
    return {
      syncs: await pruneSyncs(db),
      events: await pruneEvents(db),
      history: await pruneHappenings(db),
      states: await pruneStates(db),
    };
  } finally {
    await chores.done(db, 'prune', 0);
  }
}

async function pruneSyncs(db: Database): Promise<number> {
  // Of each kind: how wide it was, and how it ended.
  const result = await sql`
    DELETE FROM syncs WHERE id IN (
      SELECT id FROM (
        SELECT id, finished_at,
          status = 'done' AND new = 0 AND changed = 0 AND gone = 0 AND error IS NULL AS quiet,
          row_number() OVER (
            PARTITION BY connection_id, mode, status, scope - 'acceptGone' = '{}' ORDER BY finished_at DESC, id) AS place
        FROM syncs WHERE finished_at IS NOT NULL
      ) AS finished
      WHERE place > 1
        AND finished_at < now() - CASE WHEN quiet THEN ${remembered.quietSyncs}::int ELSE ${remembered.syncs}::int END * interval '1 day')
  `.execute(db);
  return rowsWritten(result);
}

async function pruneEvents(db: Database): Promise<number> {
  let pruned = 0;
  for (const [which, newer] of [
    [sql`e.asset_id IS NOT NULL`, sql`l.asset_id = e.asset_id`],
    [
      sql`e.asset_id IS NULL AND e.connection_id IS NOT NULL`,
      sql`l.asset_id IS NULL AND l.connection_id = e.connection_id`,
    ],
    [sql`e.asset_id IS NULL AND e.connection_id IS NULL`, sql`l.asset_id IS NULL AND l.connection_id IS NULL`],
  ] as const) {
    for (;;) {
      const { numAffectedRows } = await sql`
        DELETE FROM events WHERE id IN (
          SELECT e.id FROM events e
          WHERE e.at < now() - ${remembered.events}::int * interval '1 day' AND ${which}
            AND EXISTS (SELECT FROM events l WHERE ${newer} AND l.kind = e.kind AND l.id > e.id)
          ORDER BY e.at LIMIT ${batch})`.execute(db);
      pruned += Number(numAffectedRows);
      if (Number(numAffectedRows) < batch) break;
    }
  }
  return pruned;
}

/** By age; and of an asset that has more to tell than is told of one, the oldest. */
async function pruneHappenings(db: Database): Promise<number> {
  let pruned = 0;
  for (const which of [
    sql`SELECT ctid FROM asset_history WHERE at < now() - ${remembered.history}::int * interval '1 day'`,
    sql`
      SELECT h.ctid FROM (SELECT asset_id FROM asset_history GROUP BY asset_id HAVING count(*) > ${mostOfAsset}) AS long
      CROSS JOIN LATERAL (SELECT ctid FROM asset_history WHERE asset_id = long.asset_id ORDER BY id DESC OFFSET ${mostOfAsset}) AS h`,
  ]) {
    for (;;) {
      const { numAffectedRows } = await sql`
        DELETE FROM asset_history WHERE ctid = ANY(ARRAY(${which} LIMIT ${batch}))`.execute(db);
      pruned += Number(numAffectedRows);
      if (Number(numAffectedRows) < batch) break;
    }
  }
  return pruned;
}

async function pruneStates(db: Database): Promise<number> {
  const { numDeletedRows } = await db.deleteFrom('usedStates').where('until', '<', sql<Date>`now()`).executeTakeFirst();
  return Number(numDeletedRows);
}

/** Counts of which nothing is left go, once what has changed is added up. */
async function pruneCounts(db: Database): Promise<void> {
  await fold(db);
  await sql`DELETE FROM asset_counts WHERE assets = 0 AND bytes = 0 AND due = 0 AND due_bytes = 0`.execute(db);
}

/** Deliveries that nobody has sent: webhooks were turned off. */
async function pruneDeliveries(db: Database, days: number): Promise<void> {
  await sql`DELETE FROM webhook_deliveries WHERE at < now() - ${days}::int * interval '1 day'`.execute(db);
}

async function pruneSessions(db: Database): Promise<void> {
  await db.deleteFrom('endedSessions').where('until', '<', sql<Date>`now()`).execute();
}
