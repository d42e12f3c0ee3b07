import { sql } from 'kysely';
import type { Database, Event } from '../database/schema.ts';
import { auditKind } from './audit-entry.ts';

const isOfOperators = sql<boolean>`kind LIKE 'operator.%'`;
const columns = ['id', 'at', 'kind', 'connectionId', 'assetId', 'data'] as const;

export interface AuditFilter {
  q?: string | undefined;
  action?: string | undefined;
  outcome?: 'done' | 'refused' | undefined;
  /** ISO 8601. */
  since?: string | undefined;
  until?: string | undefined;
}

/** A page of entries before the id `before`, newest first. */
export async function search(
  db: Database,
  { q, action, outcome, since, until, before, limit }: AuditFilter & { before: number | undefined; limit: number },
): Promise<Event[]> {
  const part = `%${q?.replace(/[\\%_]/g, '\\$&')}%`;
  return db
    .selectFrom('events')
    .select(columns)
    .where(isOfOperators)
    .$if(action !== undefined, (query) => query.where('kind', '=', auditKind(action!)))
    .$if(outcome !== undefined, (query) => query.where(sql<boolean>`data->>'outcome' = ${outcome}`))
    .$if(since !== undefined, (query) => query.where(sql<boolean>`at >= ${new Date(since!)}`))
    .$if(until !== undefined, (query) => query.where(sql<boolean>`at < ${new Date(until!)}`))
    .$if(q !== undefined, (query) =>
      query.where(sql<boolean>`
        concat_ws(' ', data->'by'->>'name', data->'by'->>'subject', data->>'address', data->>'targetId',
          connection_id, asset_id, data->>'requestId', data->>'reason') ILIKE ${part}`),
    )
    .$if(before !== undefined, (query) => query.where('id', '<', before!))
    .orderBy('id', 'desc')
    .limit(limit)
    .execute();
}

/** The entries of a day (UTC, `2026-10-31`) after the id `after`, oldest first. */
export async function ofDay(db: Database, day: string, after: number, limit: number): Promise<Event[]> {
  const start = sql`${day}::timestamp AT TIME ZONE 'UTC'`;
  // Not `1 day`, which has 23 or 25 hours when summer time begins or ends in the time zone of the database.
  const end = sql`${start} + interval '24 hours'`;
  return db
    .selectFrom('events')
    .select(columns)
    .where(isOfOperators)
    .where(sql<boolean>`at >= ${start} AND at < ${end}`)
    .where('id', '>', after)
    .orderBy('id')
    .limit(limit)
    .execute();
}

/** Entries are committed at most this long after their time. */
const settled = sql`interval '10 minutes'`;
const day = sql`(at AT TIME ZONE 'UTC')::date`;

/** The first day (UTC) that is over, has entries, and is not in the bucket yet. */
export async function nextDay(db: Database): Promise<string | undefined> {
  const { rows } = await sql<{ day: string }>`
    SELECT ${day}::text AS day FROM events
    WHERE ${isOfOperators} AND at < date_trunc('day', now() - ${settled}, 'UTC')
      AND NOT EXISTS (SELECT FROM audit_days d WHERE d.day = ${day})
    ORDER BY at LIMIT 1`.execute(db);
  return rows[0]?.day;
}

/** The day is in the bucket. */
export async function dayWritten(db: Database, filed: string): Promise<void> {
  await sql`INSERT INTO audit_days (day) VALUES (${filed}::date) ON CONFLICT DO NOTHING`.execute(db);
}

/** Deletes entries that are older than `keepMs` and in the bucket. */
export async function pruneAudit(db: Database, keepMs: number): Promise<void> {
  if (!Number.isFinite(keepMs)) return;
  await sql`
    DELETE FROM events WHERE ${isOfOperators} AND at < now() - ${keepMs} * interval '1 ms'
      AND EXISTS (SELECT FROM audit_days d WHERE d.day = ${day})`.execute(db);
}
