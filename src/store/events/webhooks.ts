import { sql } from 'kysely';
import type { WebhookKind } from '../../webhook-kinds.ts';
import type { Database } from '../database/schema.ts';
import { inMs, msAgo } from '../database/time.ts';
import { addEvent } from './add-event.ts';
import { type EventPosition, since, startingPosition } from './events.ts';

/** An event to be sent to an endpoint. */
export interface Delivery {
  id: string;
  kind: WebhookKind;
  at: Date;
  connectionId: string | null;
  assetId: string | null;
  data: Record<string, unknown>;
  attempts: number;
}

/** Maximum of events collected at a time. */
const batch = 1000;

/** From now on each event becomes one delivery. If this was begun before, it continues from there. */
export async function begin(db: Database): Promise<void> {
  const { xact, id } = await startingPosition(db);
  await sql`
    INSERT INTO webhook_cursor (xact, id) VALUES (${xact}::xid8, ${id}) ON CONFLICT DO NOTHING`.execute(db);
}

/** Makes deliveries of new events, unless another process does. True: there may be more. */
export async function collect(db: Database, kinds: readonly string[], giveUpMs: number): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<EventPosition>`
      SELECT xact::text, id FROM webhook_cursor FOR UPDATE SKIP LOCKED`.execute(tx);
    if (!rows[0]) return false;
    const from = await startingPosition(tx, rows[0]);
    const found = await since(tx, from, batch);
    const wanted = found.filter(({ kind }) => kinds.includes(kind)).map(({ id }) => id);
    const next = found.at(-1) ?? from;
    if (wanted.length > 0) {
      await sql`
        INSERT INTO webhook_deliveries (id, kind, at, connection_id, asset_id, data, next_at)
        SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), kind, at, connection_id, asset_id, data, now()
        FROM events WHERE id = ANY(${wanted}::bigint[]) AND at > ${msAgo(giveUpMs)}
        ORDER BY id`.execute(tx);
    }
    if (next.xact !== rows[0].xact || next.id !== rows[0].id) {
      await sql`UPDATE webhook_cursor SET xact = ${next.xact}::xid8, id = ${next.id}`.execute(tx);
    }
    return found.length === batch;
  });
}

/** Leases due deliveries for `leaseMs`, oldest first. The caller must report each as delivered or again by then. */
export async function lease(db: Database, limit: number, leaseMs: number): Promise<Delivery[]> {
  const { rows } = await sql<Delivery>`
    WITH due AS (
      SELECT id FROM webhook_deliveries WHERE next_at <= now() ORDER BY next_at LIMIT ${limit} FOR UPDATE SKIP LOCKED)
    UPDATE webhook_deliveries d SET attempts = attempts + 1, next_at = ${inMs(leaseMs)}
    FROM due WHERE d.id = due.id
    RETURNING d.id, d.kind, d.at, d.connection_id, d.asset_id, d.data, d.attempts`.execute(db);
  return rows;
}

/** The endpoint has accepted it. */
export async function delivered(db: Database, id: string): Promise<void> {
  await sql`DELETE FROM webhook_deliveries WHERE id = ${id}`.execute(db);
}

export async function again(db: Database, id: string, waitMs: number, reason: string): Promise<void> {
  await sql`
    UPDATE webhook_deliveries SET next_at = ${inMs(waitMs)}, error = ${reason} WHERE id = ${id}`.execute(db);
}

/** Gives up deliveries of events older than this, and adds an event about them. Returns how many. */
export async function giveUp(db: Database, giveUpMs: number): Promise<number> {
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<{ kind: string; count: number; reason: string | null }>`
      WITH given_up AS (
        DELETE FROM webhook_deliveries WHERE id IN (
          SELECT id FROM webhook_deliveries WHERE at < ${msAgo(giveUpMs)} FOR UPDATE SKIP LOCKED)
        RETURNING kind, error)
      SELECT kind, count(*) AS count, max(error) AS reason FROM given_up GROUP BY kind`.execute(tx);
    for (const data of rows) await addEvent(tx, { kind: 'webhook.given_up', data: { ...data } });
    return rows.reduce((sum, { count }) => sum + count, 0);
  });
}

/** How many deliveries wait. */
export async function waiting(db: Database): Promise<number> {
  const { rows } = await sql<{ count: number }>`SELECT count(*) AS count FROM webhook_deliveries`.execute(db);
  return rows[0]!.count;
}
