import { sql } from 'kysely';
import { rowsWritten } from '../database/results.ts';
import type { Database } from '../database/schema.ts';
import { atMicros, microsOf } from '../database/time.ts';

export const deliveryStates = ['waiting', 'delivered', 'failed'] as const;
export type DeliveryState = (typeof deliveryStates)[number];

/** An event and its last attempt. `failed`: it was given up. */
export interface LoggedDelivery {
  id: string;
  state: DeliveryState;
  kind: string;
  at: Date;
  connectionId: string | null;
  assetId: string | null;
  attempts: number;
  nextAt: Date;
  attemptedAt: Date | null;
  status: number | null;
  error: string | null;
  ms: number | null;
}

/** A page of the log of an endpoint, newest events first. `position`: the time of the event in microseconds. */
export async function log(
  db: Database,
  endpointId: string,
  page: { state?: DeliveryState | undefined; before?: { at: number; id: string } | undefined; limit: number },
) {
  const { state, before, limit } = page;
  const isBefore = before ? sql`AND (at, id) < (${atMicros(before.at)}, ${before.id})` : sql``;
  // State by state, because the index has them in this order.
  const { rows } = await sql<LoggedDelivery & { position: number }>`
    SELECT d.* FROM unnest(${state === undefined ? [...deliveryStates] : [state]}::text[]) AS wanted (state)
    CROSS JOIN LATERAL (
      SELECT id, state, kind, at, connection_id, asset_id, attempts, next_at, attempted_at, status, error, ms,
        ${microsOf('at')} AS position
      FROM webhook_deliveries WHERE endpoint_id = ${endpointId} AND state = wanted.state ${isBefore}
      ORDER BY at DESC, id DESC LIMIT ${limit}) AS d
    ORDER BY d.at DESC, d.id DESC LIMIT ${limit}`.execute(db);
  return rows;
}

/**
 * Makes deliveries due now, with their ids: one by its id, or all that have failed, or wait after a failed attempt, for events since a
 * time. Returns how many.
 */
export async function redeliver(
  db: Database,
  endpointId: string,
  which: { messageId: string } | { failedSince: Date },
): Promise<number> {
  const chosen =
    'messageId' in which
      ? sql`id = ${which.messageId}`
      : sql`at >= ${which.failedSince} AND (state = 'failed' OR state = 'waiting' AND error IS NOT NULL)`;
  const result = await sql`
    UPDATE webhook_deliveries SET state = 'waiting', attempts = 0, waiting_since = now(), next_at = now()
    WHERE endpoint_id = ${endpointId} AND ${chosen}`.execute(db);
  return rowsWritten(result);
}
