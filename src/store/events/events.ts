import { sql } from 'kysely';
import { firstOpen, isAfter, isFinal, type Position } from '../database/position.ts';
import type { Database, Event } from '../database/schema.ts';

const columns = ['id', 'at', 'kind', 'connectionId', 'assetId', 'data'] as const;

/** A page of events before `before`, newest first. */
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

/** Events after `position`. No event is ever added before one that was returned. */
export async function since(db: Database, position: Position, limit: number): Promise<(Event & Position)[]> {
  return db
    .selectFrom('events')
    .select([...columns, 'xact'])
    .where(isAfter(position))
    .where(isFinal)
    .orderBy('xact')
    .orderBy('id')
    .limit(limit)
    .execute();
}

/** Returns `position`, or now. A position ahead of this database comes from another database and counts as now. */
export async function startingPosition(db: Database, position?: Position): Promise<Position> {
  const { rows } = await sql<{ now: string; ahead: boolean }>`
    SELECT ${firstOpen} AS now,
      ${position?.xact ?? '0'}::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) AS ahead`.execute(db);
  const { now, ahead } = rows[0]!;
  return position && !ahead ? position : { xact: now, id: 0 };
}

/** Moves events that were copied from another database to the beginning: their transactions are ahead of those here. */
export async function moveCopiedToStart(db: Database): Promise<void> {
  await sql`UPDATE events SET xact = '0' WHERE xact >= pg_snapshot_xmax(pg_current_snapshot())`.execute(db);
}
