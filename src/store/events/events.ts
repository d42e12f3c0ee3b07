import { sql } from 'kysely';
import type { Database, Event } from '../database/schema.ts';

/** Up to where somebody has followed events: a transaction, and the id of an event in it. */
export interface EventPlace {
  xact: string;
  id: number;
}

const columns = ['id', 'at', 'kind', 'connectionId', 'assetId', 'data'] as const;

/** A page of what happened, the newest first, from before the event `before`. */
export async function search(
  db: Database,
  filter: {
    connectionId?: string | undefined;
    assetId?: string | undefined;
    kind?: string | undefined;
    before?: number | undefined;
    limit: number;
  },
): Promise<Event[]> {
  return db
    .selectFrom('events')
    .select(columns)
    .$if(filter.connectionId !== undefined, (query) => query.where('connectionId', '=', filter.connectionId!))
    .$if(filter.assetId !== undefined, (query) => query.where('assetId', '=', filter.assetId!))
    .$if(filter.kind !== undefined, (query) => query.where('kind', '=', filter.kind!))
    .$if(filter.before !== undefined, (query) => query.where('id', '<', filter.before!))
    .orderBy('id', 'desc')
    .limit(filter.limit)
    .execute();
}

/**
 * What happened behind `place`, in an order in which nothing is ever put in between: what belongs to a transaction that
 * began after one that is still open comes later.
 */
export async function since(db: Database, place: EventPlace, limit: number): Promise<(Event & EventPlace)[]> {
  return db
    .selectFrom('events')
    .select([...columns, 'xact'])
    .where(sql<boolean>`(xact, id) > (${place.xact}::xid8, ${place.id}::bigint)`)
    .where(sql<boolean>`xact < pg_snapshot_xmin(pg_current_snapshot())`)
    .orderBy('xact')
    .orderBy('id')
    .limit(limit)
    .execute();
}

/** Where following begins: at `place`, or now, or as far before it as a transaction is still open. A place that lies ahead is of another database: then it is now, too. */
export async function place(db: Database, place?: EventPlace): Promise<EventPlace> {
  const { rows } = await sql<{ now: string; ahead: boolean }>`
    SELECT pg_snapshot_xmin(pg_current_snapshot()) AS now,
      ${place?.xact ?? '0'}::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) AS ahead`.execute(db);
  const { now, ahead } = rows[0]!;
  return place && !ahead ? place : { xact: now, id: 0 };
}

/** Events that came with a copy from another database keep no place among the transactions of this one. */
export async function settle(db: Database): Promise<void> {
  await sql`UPDATE events SET xact = '0' WHERE xact >= pg_snapshot_xmax(pg_current_snapshot())`.execute(db);
}
