import { sql } from 'kysely';
import * as feed from './changes/changes.ts';
import { fold } from './counts/counts.ts';
import { rowsWritten } from './database/results.ts';
import type { Database } from './database/schema.ts';
import { pruneAudit } from './operators/audit.ts';
import { pruneSessions } from './operators/sessions.ts';
import * as chores from './settings/chores.ts';
import { syncLimits } from './syncs/end-sync.ts';
import { pruneReplacements } from './syncs/replacements.ts';

/** How long things are kept, in days. */
export const remembered = {
  /** Syncs without changes and errors: with an interval of five minutes, 288 a day and connection. */
  quietSyncs: 1,
  syncs: 30,
  /** Not the events of operators, which are the audit log. */
  events: 30,
  history: 30,
  /** A day more than is promised: a reader who is late by 30 days has time to continue. */
  changes: 31,
};

export interface Pruned {
  syncs: number;
  events: number;
  history: number;
}

/** How long other processes wait after one that died while it pruned. */
const leaseMs = 600_000;
/** Maximum of rows deleted by one statement. */
const batch = 10_000;
/** Maximum of history entries kept of an asset. */
const mostOfAsset = 200;

/**
 * Deletes old syncs, events, history and changes. The last sync and event of each kind of a connection or asset stays.
 * `auditMs`: how long the audit log is kept. Undefined: another process is pruning.
 */
export async function prune(db: Database, { auditMs }: { auditMs: number }): Promise<Pruned | undefined> {
  // Not a session lock: behind a pooler the next statement may run in another session, and the lock would stay.
  if (!(await chores.take(db, 'prune', leaseMs))) return undefined;
  try {
    await pruneSessions(db);
    await pruneAudit(db, auditMs);
    await pruneCounts(db);
    await pruneReplacements(db);
    await inBatches(() => feed.prune(db, remembered.changes, batch));
    return {
      syncs: await pruneSyncs(db),
      events: await pruneEvents(db),
      history: await pruneHistory(db),
    };
  } finally {
    await chores.done(db, 'prune', 0);
  }
}

async function pruneSyncs(db: Database): Promise<number> {
  // A kind is a mode, a scope (all or a part) and a status.
  const result = await sql`
    DELETE FROM syncs WHERE id IN (
      SELECT id FROM (
        SELECT id, finished_at,
          status = 'done' AND new = 0 AND changed = 0 AND gone = 0 AND error IS NULL AS quiet,
          row_number() OVER (
            PARTITION BY connection_id, mode, status, ${syncLimits} = '{}' ORDER BY finished_at DESC, id) AS rank
        FROM syncs WHERE finished_at IS NOT NULL
      ) AS finished
      WHERE rank > 1
        AND finished_at < now() - CASE WHEN quiet THEN ${remembered.quietSyncs}::int ELSE ${remembered.syncs}::int END * interval '1 day')
  `.execute(db);
  return rowsWritten(result);
}

async function pruneEvents(db: Database): Promise<number> {
  let pruned = 0;
  for (const [which, newer, isOrphan = sql`false`] of [
    [
      sql`e.asset_id IS NOT NULL`,
      sql`l.asset_id = e.asset_id`,
      sql`NOT EXISTS (SELECT FROM assets WHERE id = e.asset_id)`,
    ],
    [
      sql`e.asset_id IS NULL AND e.connection_id IS NOT NULL`,
      sql`l.asset_id IS NULL AND l.connection_id = e.connection_id`,
    ],
    [sql`e.asset_id IS NULL AND e.connection_id IS NULL`, sql`l.asset_id IS NULL AND l.connection_id IS NULL`],
  ] as const) {
    const statement = sql`
      DELETE FROM events WHERE id IN (
        SELECT e.id FROM events e
        WHERE e.at < now() - ${remembered.events}::int * interval '1 day' AND e.kind NOT LIKE 'operator.%' AND ${which}
          AND (${isOrphan} OR EXISTS (SELECT FROM events l WHERE ${newer} AND l.kind = e.kind AND l.id > e.id))
        ORDER BY e.at LIMIT ${batch})`;
    pruned += await inBatches(async () => rowsWritten(await statement.execute(db)));
  }
  return pruned;
}

/** Deletes by age, and the oldest entries of assets that have too many. */
async function pruneHistory(db: Database): Promise<number> {
  const old = sql`SELECT ctid FROM asset_history WHERE at < now() - ${remembered.history}::int * interval '1 day'`;
  const surplus = sql`
    SELECT h.ctid FROM (SELECT asset_id FROM asset_history GROUP BY asset_id HAVING count(*) > ${mostOfAsset}) AS long
    CROSS JOIN LATERAL (SELECT ctid FROM asset_history WHERE asset_id = long.asset_id ORDER BY id DESC OFFSET ${mostOfAsset}) AS h`;
  let pruned = 0;
  for (const which of [old, surplus]) {
    const statement = sql`DELETE FROM asset_history WHERE ctid = ANY(ARRAY(${which} LIMIT ${batch}))`;
    pruned += await inBatches(async () => rowsWritten(await statement.execute(db)));
  }
  return pruned;
}

/** Calls `deleteRows`, which deletes up to `batch` rows, until none are left. Returns how many were deleted. */
async function inBatches(deleteRows: () => Promise<number>): Promise<number> {
  for (let deleted = 0; ; ) {
    const rows = await deleteRows();
    deleted += rows;
    if (rows < batch) return deleted;
  }
}

/** Deletes counts that are zero. */
async function pruneCounts(db: Database): Promise<void> {
  await fold(db);
  await sql`DELETE FROM asset_counts WHERE assets = 0 AND bytes = 0 AND due = 0 AND due_bytes = 0`.execute(db);
}
