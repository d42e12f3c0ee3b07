import { sql } from 'kysely';
import type { Connection, Database } from '../database/schema.ts';

// A sync is late when the last complete one is older than this. The alert on the lag has the same rule.
const intervals = 1.25;
const marginMs = 15 * 60_000;

/** Whether the sync of a connection is late at `now`, epoch ms by the database's clock. */
export function isLate(
  { lastSyncAt, connectedAt }: Pick<Connection, 'lastSyncAt' | 'connectedAt'>,
  { syncInterval, now }: { syncInterval: number; now: number },
): boolean {
  const last = Math.max(lastSyncAt?.getTime() ?? 0, connectedAt.getTime());
  return now - last > syncInterval * intervals + marginMs;
}

/** In ms. */
const intervalOr = (byDefault: number) => sql`coalesce((settings->>'syncInterval')::float8, ${byDefault})`;

const isLateAt = (byDefault: number) => sql`now() - greatest(last_sync_at, connected_at)
  > (${intervalOr(byDefault)} * ${intervals}::float8 + ${marginMs}::float8) * interval '1 ms'`;

/** For each active connection: the seconds since its last complete sync, or since it connected, and the seconds between syncs. */
export async function lags(db: Database, defaultInterval: number) {
  const { rows } = await sql<{ id: string; seconds: number; interval: number }>`
    SELECT id, extract(epoch FROM now() - greatest(last_sync_at, connected_at))::float8 AS seconds,
      ${intervalOr(defaultInterval)} / 1000 AS interval
    FROM connections WHERE status = 'active'`.execute(db);
  return rows;
}

/** Active connections whose sync is late, at most a hundred. */
export async function late(db: Database, defaultInterval: number): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM connections WHERE status = 'active' AND ${isLateAt(defaultInterval)} ORDER BY id LIMIT 100`.execute(
    db,
  );
  return rows.map(({ id }) => id);
}

/** When active connections were last synced, how many never were, and how many are late. `connectionId`: only this one. */
export async function freshness(db: Database, defaultInterval: number, connectionId?: string) {
  const one = connectionId === undefined ? sql`true` : sql`id = ${connectionId}`;
  const { rows } = await sql<{ connections: number; late: number; neverSynced: number; oldestSync: Date | null }>`
    SELECT count(*) AS connections, count(*) FILTER (WHERE ${isLateAt(defaultInterval)}) AS late,
      count(*) FILTER (WHERE last_sync_at IS NULL) AS never_synced, min(last_sync_at) AS oldest_sync
    FROM connections WHERE status = 'active' AND ${one}`.execute(db);
  return rows[0]!;
}

/** How many active connections have an error, a held company, or are late. */
export async function countTroubled(db: Database, defaultInterval: number): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    SELECT count(*) AS count FROM connections WHERE status = 'active' AND (last_error IS NOT NULL
      OR EXISTS (SELECT FROM access WHERE connection_id = connections.id AND lost_at IS NULL AND held <> '{}')
      OR ${isLateAt(defaultInterval)})`.execute(db);
  return rows[0]!.count;
}
