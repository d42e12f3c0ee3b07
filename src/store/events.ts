import { sql } from 'kysely';
import type { Notice } from './database.ts';
import type { Database } from './schema.ts';

/** What happened, for people: written in the transaction of the change that it tells of. */
export async function addEvent(
  db: Database,
  event: { kind: string; connectionId?: string; assetId?: string; data?: Record<string, unknown> },
): Promise<void> {
  await db
    .insertInto('events')
    .values({
      kind: event.kind,
      connectionId: event.connectionId ?? null,
      assetId: event.assetId ?? null,
      data: JSON.stringify(event.data ?? {}) as never,
    })
    .execute();
}

/** Tells all processes, when the surrounding transaction commits. */
export async function notify(db: Database, notice: Notice): Promise<void> {
  await sql`SELECT pg_notify('asset_mirror', ${JSON.stringify(notice)})`.execute(db);
}
