import { sql } from 'kysely';
import type { WebhookKind } from '../../floor/webhook-kinds.ts';
import { jsonb } from '../database/jsonb.ts';
import type { Position } from '../database/position.ts';
import type { Database } from '../database/schema.ts';
import { inMs, msAgo } from '../database/time.ts';
import { addEvent } from './add-event.ts';
import type { EndpointFilters } from './endpoints.ts';
import { since, startingPosition } from './events.ts';

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

/** The setting with the position up to which events have become deliveries. */
const cursor = 'webhook_cursor';
/** Maximum of events collected at a time. */
const batch = 1000;

/** From now on each event becomes one delivery per endpoint. If this was begun before, it continues from there. */
export async function begin(db: Database): Promise<void> {
  const position = jsonb(await startingPosition(db));
  await sql`INSERT INTO settings (name, value) VALUES (${cursor}, ${position}) ON CONFLICT DO NOTHING`.execute(db);
}

const matches = (filter: keyof EndpointFilters, value: string) => {
  const name = sql.lit(filter);
  return sql`(NOT w.filters ? ${name} OR coalesce(w.filters->${name} ? ${sql.raw(value)}, false))`;
};

/** The endpoint `w` gets the event `e` about the asset `a`, or about none. */
const isFor = sql`w.enabled AND e.kind = ANY(w.kinds) AND ${matches('connectionIds', 'e.connection_id')}
  AND ${matches('companyIds', "coalesce(a.company_id, e.data->>'companyId')")}
  AND ${matches('projectIds', 'a.project_id')} AND ${matches('assetTypes', 'a.asset_type')}`;

/** Makes deliveries of new events, unless another process does. True: there may be more. */
export async function collect(db: Database, giveUpMs: number): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const { rows } = await sql<{ value: Position }>`
      SELECT value FROM settings WHERE name = ${cursor} FOR UPDATE SKIP LOCKED`.execute(tx);
    if (!rows[0]) return false;
    const before = rows[0].value;
    const from = await startingPosition(tx, before);
    const found = await since(tx, from, batch);
    const next = found.at(-1) ?? from;
    if (found.length > 0) {
      await sql`
        INSERT INTO webhook_deliveries (id, endpoint_id, kind, at, connection_id, asset_id, data, waiting_since, next_at)
        SELECT 'msg_' || replace(gen_random_uuid()::text, '-', ''), w.id, e.kind, e.at, e.connection_id, e.asset_id, e.data,
          e.at, now()
        FROM events e LEFT JOIN assets a ON a.id = e.asset_id JOIN webhook_endpoints w ON ${isFor}
        WHERE e.id = ANY(${found.map(({ id }) => id)}::bigint[]) AND e.at > ${msAgo(giveUpMs)}
        ORDER BY e.id FOR KEY SHARE OF e`.execute(tx);
    }
    if (next.xact !== before.xact || next.id !== before.id) {
      const position = jsonb({ xact: next.xact, id: next.id });
      await sql`UPDATE settings SET value = ${position} WHERE name = ${cursor}`.execute(tx);
    }
    return found.length === batch;
  });
}

/** The ids of the endpoints for which something is due. */
export async function endpointsDue(db: Database): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM webhook_endpoints w WHERE enabled AND gone_at IS NULL AND EXISTS (
      SELECT FROM webhook_deliveries d WHERE d.endpoint_id = w.id AND d.state = 'waiting' AND d.next_at <= now())`.execute(
    db,
  );
  return rows.map(({ id }) => id);
}

/** Leases the longest due delivery of an endpoint for `leaseMs`. The caller must report it as attempted by then. */
export async function lease(db: Database, endpointId: string, leaseMs: number): Promise<Delivery | undefined> {
  const { rows } = await sql<Delivery>`
    WITH due AS (
      SELECT id FROM webhook_deliveries WHERE endpoint_id = ${endpointId} AND state = 'waiting' AND next_at <= now()
        AND EXISTS (SELECT FROM webhook_endpoints WHERE id = ${endpointId} AND enabled AND gone_at IS NULL)
      ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    UPDATE webhook_deliveries d SET attempts = attempts + 1, next_at = ${inMs(leaseMs)}
    FROM due WHERE d.id = due.id
    RETURNING d.id, d.kind, d.at, d.connection_id, d.asset_id, d.data, d.attempts`.execute(db);
  return rows[0];
}

/** The result of an attempt. `error`: why the endpoint did not accept it; it is due again after `waitMs`. */
export interface Attempt {
  status: number | null;
  ms: number;
  error?: string;
  waitMs?: number;
}

/** Saves the result of an attempt, unless there was another one after it. During the attempt, the delivery may have been given up. */
export async function attempted(
  db: Database,
  { id, attempts }: Delivery,
  { status, ms, error, waitMs = 0 }: Attempt,
): Promise<void> {
  const isDelivered = error === undefined;
  const [state, before] = isDelivered ? ['delivered', ['waiting', 'failed']] : ['waiting', ['waiting']];
  await sql`
    UPDATE webhook_deliveries SET state = ${state}, next_at = ${inMs(waitMs)}, attempted_at = now(), status = ${status},
      error = ${error ?? null}, ms = ${Math.round(ms)}
    WHERE id = ${id} AND attempts = ${attempts} AND state = ANY(${before}::text[])`.execute(db);
}

/** Events that were given up, of a kind and for an endpoint. `reason`: of one of them. */
interface GivenUp {
  endpointId: string;
  kind: string;
  count: number;
  reason: string | null;
}

/**
 * How much longer than `giveUpMs` the oldest delivery waits. Then all old ones are given up together: otherwise, an endpoint that is
 * down causes an event every few seconds.
 */
const givenUpTogetherMs = 3_600_000;

/**
 * Once a delivery has waited an hour longer than `giveUpMs`, gives up all that have waited longer than `giveUpMs`. Events report
 * them. One process at a time does so.
 */
export async function giveUp(db: Database, giveUpMs: number): Promise<GivenUp[]> {
  return db.transaction().execute(async (tx) => {
    const { rows: lock } = await sql<{ mine: boolean }>`SELECT pg_try_advisory_xact_lock(7417) AS mine`.execute(tx);
    if (!lock[0]!.mine) return [];
    const { rows } = await sql<GivenUp>`
      WITH given_up AS (
        UPDATE webhook_deliveries SET state = 'failed' WHERE id IN (
          SELECT id FROM webhook_deliveries WHERE state = 'waiting' AND waiting_since < ${msAgo(giveUpMs)} AND EXISTS (
            SELECT FROM webhook_deliveries WHERE state = 'waiting' AND waiting_since < ${msAgo(giveUpMs + givenUpTogetherMs)})
          FOR UPDATE)
        RETURNING endpoint_id, kind, error)
      SELECT endpoint_id, kind, count(*) AS count, max(error) AS reason FROM given_up GROUP BY endpoint_id, kind`.execute(
      tx,
    );
    for (const data of rows) await addEvent(tx, { kind: 'webhook.given_up', data: { ...data } });
    return rows;
  });
}

/** How many entries of its log an endpoint keeps, of those delivered and of those given up, and for how many days. */
const kept = { entries: 1000, days: 30 };

/** Deletes the older entries of the logs. */
export async function trim(db: Database): Promise<void> {
  await sql`
    DELETE FROM webhook_deliveries WHERE id IN (
      SELECT d.id FROM webhook_endpoints w CROSS JOIN (VALUES ('delivered'), ('failed')) AS ended (state)
      CROSS JOIN LATERAL (
        SELECT id, at, row_number() OVER (ORDER BY at DESC, id DESC) AS rank FROM webhook_deliveries
        WHERE endpoint_id = w.id AND state = ended.state) AS d
      WHERE d.rank > ${kept.entries} OR d.at < now() - ${kept.days}::int * interval '1 day')`.execute(db);
}
