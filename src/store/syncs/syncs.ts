import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { jsonb } from '../database/jsonb.ts';
import type { Database, Sync, SyncMode, SyncScope } from '../database/schema.ts';
import { atMicros, microsOf, msAgo } from '../database/time.ts';
import { unlessWaiting } from './schedule.ts';

/**
 * Requests a sync. If one of the same scope waits already, that one is used. Without limits, it becomes a full one if asked; with
 * limits, the mode must be the same, too. `bucket`: a scheduled verification follows. Returns its id; undefined if the connection is disconnected.
 */
export async function request(
  db: Database,
  connectionId: string,
  mode: SyncMode,
  scope: SyncScope = {},
  options: { bucket?: boolean } = {},
): Promise<string | undefined> {
  const id = randomUUID();
  const { rows } = await sql<{ id: string }>`
    INSERT INTO syncs (id, connection_id, mode, scope, with_bucket, status)
    SELECT ${id}, id, ${mode}, ${jsonb(scope)}, ${options.bucket ?? false}, 'waiting' FROM connections
    WHERE id = ${connectionId} AND status <> 'disconnected' FOR SHARE
    ${unlessWaiting} RETURNING id`.execute(db);
  return rows[0]?.id;
}

/** Connections with an interrupted sync, or one that has waited for `staleMs`, that no process works on. */
export async function unattended(db: Database, staleMs: number): Promise<string[]> {
  const { rows } = await sql<{ connectionId: string }>`
    SELECT DISTINCT s.connection_id FROM syncs s JOIN connections c ON c.id = s.connection_id
    WHERE s.status IN ('waiting', 'running') AND c.status = 'active'
      AND (c.sync_until IS NULL OR c.sync_until < now())
      AND (c.delayed_until IS NULL OR c.delayed_until < now())
      AND (s.status = 'running' OR s.requested_at < ${msAgo(staleMs)})`.execute(db);
  return rows.map((row) => row.connectionId);
}

/** Saves the trace of a sync, which the work on its assets continues. */
export async function saveTrace(db: Database, id: string, traceparent: string): Promise<void> {
  await db.updateTable('syncs').set({ traceparent }).where('id', '=', id).execute();
}

/** How many syncs wait or run. */
export async function countOpen(db: Database) {
  const { rows } = await sql<{ waiting: number; running: number }>`
    SELECT count(*) FILTER (WHERE status = 'waiting') AS waiting, count(*) FILTER (WHERE status = 'running') AS running
    FROM syncs WHERE status IN ('waiting', 'running')`.execute(db);
  return rows[0]!;
}

/** A page of syncs after `after`, newest first. `micros`: when it was requested. */
export async function search(
  db: Database,
  filter: {
    connectionId?: string | undefined;
    after?: { micros: number; id: string } | undefined;
    limit: number;
  },
): Promise<(Sync & { micros: number })[]> {
  const { after } = filter;
  return db
    .selectFrom('syncs')
    .selectAll()
    .select(microsOf('requested_at').as('micros'))
    .$if(filter.connectionId !== undefined, (query) => query.where('connectionId', '=', filter.connectionId!))
    .$if(after !== undefined, (query) =>
      query.where(sql<boolean>`(requested_at, id) < (${atMicros(after!.micros)}, ${after!.id})`),
    )
    .orderBy('requestedAt', 'desc')
    .orderBy('id', 'desc')
    .limit(filter.limit)
    .execute();
}

export async function get(db: Database, id: string): Promise<Sync | undefined> {
  return db.selectFrom('syncs').selectAll().where('id', '=', id).executeTakeFirst();
}
