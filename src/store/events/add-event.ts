import { type RawBuilder, sql } from 'kysely';
import type { Notice } from '../database/database.ts';
import type { Database } from '../database/schema.ts';

/** Adds an event. Call it in the transaction of the change that it reports. */
export async function addEvent(
  db: Database,
  event: { kind: string; connectionId?: string | null; assetId?: string | null; data?: Record<string, unknown> },
): Promise<void> {
  await db.insertInto('events').values(event).execute();
}

/** Notifies all processes when the surrounding transaction commits. */
export async function notify(db: Database, notice: Notice): Promise<void> {
  await sql`SELECT pg_notify('asset_mirror', ${JSON.stringify(notice)})`.execute(db);
}

/** Whether any endpoint takes this kind. Kinds that would give many assets an event are only written if an endpoint takes them. */
export const isWanted = (kind: RawBuilder<unknown>) =>
  sql<boolean>`EXISTS (SELECT FROM webhook_endpoints w WHERE w.enabled AND ${kind} = ANY(w.kinds))`;
