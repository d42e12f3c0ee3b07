import { type RawBuilder, sql } from 'kysely';
import type { AssetState, Database } from './schema.ts';

/** An asset whose job is to be on the queue. The turn it had last tells that job from an earlier one. */
export interface QueuedAsset {
  id: string;
  state: AssetState;
  turn: number;
  /** Of the run that brought it. */
  traceparent?: string | null;
}

/** The trace of the run that last saw something new in an asset. */
export const traceparent = sql`(SELECT traceparent FROM syncs WHERE syncs.id = assets.sync_id) AS traceparent`;

/** How many places a connection has on the queue, unless its settings or its pace say otherwise. */
export interface Room {
  perConnection: number;
  only?: string[] | undefined;
}

/** What is to be mirrored, and what is mirrored and to be looked at again: in the words of the indexes of either. */
const ofMedia = sql`state <> 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL`;
const ofLooks = sql`state = 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL`;

/** How many places the connection `c` has on the queue. */
export const mostPlaces = (perConnection: RawBuilder<unknown>) =>
  sql`least(coalesce((c.settings->>'concurrency')::int, ${perConnection}), (c.pace->>'limit')::int)`;

/** No worker has it. What has left the queue while its connection waits may still be in the hands of one. */
export const free = sql`(turn_until IS NULL OR turn_until < now())`;

/**
 * The newest media that is due of the company in a row of `of`, and nobody works on, locked; what others have locked is passed
 * over.
 */
export const dueMedia = (of: RawBuilder<unknown>, most: RawBuilder<unknown>, more = sql``) => sql`
  SELECT id, upload_date FROM assets
  WHERE connection_id = ${of}.connection_id AND company_id = ${of}.company_id AND ${ofMedia} AND next_at <= now()
    AND ${free} ${more}
  ORDER BY upload_date DESC NULLS LAST, id LIMIT ${most}
  FOR UPDATE SKIP LOCKED`;

/**
 * Connections for which media waits, or a look is due. From one to the next: indexes are not read but at these places, and
 * the one of looks only if any is due at all.
 */
async function waiting(tx: Database): Promise<string[]> {
  const order = sql`ORDER BY connection_id, company_id`;
  const { rows } = await sql<{ connectionId: string }>`
    WITH RECURSIVE media AS (
      (SELECT connection_id, company_id FROM assets WHERE ${ofMedia} AND connection_id IS NOT NULL ${order} LIMIT 1)
      UNION ALL
      SELECT next.* FROM media AS here CROSS JOIN LATERAL (
        SELECT connection_id, company_id FROM assets
        WHERE ${ofMedia} AND (connection_id, company_id) > (here.connection_id, here.company_id) ${order} LIMIT 1
      ) AS next
    ), looks AS (
      (SELECT connection_id, company_id, next_at FROM assets WHERE ${ofLooks} AND connection_id IS NOT NULL
        AND (SELECT next_at FROM assets WHERE ${ofLooks} ORDER BY next_at LIMIT 1) <= now()
      ${order}, next_at LIMIT 1)
      UNION ALL
      SELECT next.* FROM looks AS here CROSS JOIN LATERAL (
        SELECT connection_id, company_id, next_at FROM assets
        WHERE ${ofLooks} AND (connection_id, company_id) > (here.connection_id, here.company_id) ${order}, next_at LIMIT 1
      ) AS next
    )
    SELECT connection_id FROM media UNION SELECT connection_id FROM looks WHERE next_at <= now()`.execute(tx);
  return rows.map(({ connectionId }) => connectionId);
}

/**
 * Takes assets that are due for the queue: for each active connection as many as it has room, in turns (the first of every
 * connection before the second of any). Media newest first; looks at what is mirrored, longest due first, have what media
 * leaves, and a quarter of the places in any case: a single one every fourth time, by chance. What its connection can no
 * longer read stays where it is. What is not due costs nothing. `only`: no other connections are looked at. Undefined:
 * another process is at it.
 */
export async function dispatch(db: Database, room: Room): Promise<QueuedAsset[] | undefined> {
  return db.transaction().execute(async (tx) => {
    // Without statistics, as in the minutes of a first sync, the planner would read and sort all assets of a connection
    // rather than take the few from the indexes of what is queued and what is due.
    const lock = await sql<{ mine: boolean }>`
      SELECT pg_try_advisory_xact_lock(7412) AS mine,
        set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`.execute(
      tx,
    );
    if (!lock.rows[0]!.mine) return undefined;
    const connections = room.only ?? (await waiting(tx));
    if (connections.length === 0) return [];
    const amongThem = sql`connection_id = ANY(${connections}::text[])`;
    const { rows } = await sql<QueuedAsset & { place: number }>`
      WITH queued AS MATERIALIZED (
        SELECT connection_id, count(*) AS jobs, count(*) FILTER (WHERE state = 'mirrored') AS looks FROM assets
        WHERE queued_at IS NOT NULL AND ${amongThem} GROUP BY connection_id
      ), places AS MATERIALIZED (
        SELECT id, ${mostPlaces(sql`${room.perConnection}`)} AS most, random() < 0.25 AS fourth FROM connections c
        WHERE id = ANY(${connections}::text[]) AND status = 'active' AND (parked_until IS NULL OR parked_until <= now())
      ), room AS MATERIALIZED (
        SELECT access.connection_id, access.company_id, places.most - coalesce(queued.jobs, 0) AS free,
          CASE WHEN places.most = 1 THEN places.fourth::int ELSE ceil(places.most / 4.0) END - coalesce(queued.looks, 0) AS kept
        FROM access JOIN places ON places.id = access.connection_id
        LEFT JOIN queued ON queued.connection_id = places.id
        WHERE access.${amongThem} AND access.lost_at IS NULL
          AND places.most > coalesce(queued.jobs, 0)
      ), media AS MATERIALIZED (
        SELECT room.connection_id, room.free, a.id, a.upload_date
        FROM room CROSS JOIN LATERAL (${dueMedia(sql`room`, sql`room.free`)}) a
      ), looks AS (
        SELECT room.connection_id, room.free, a.id, a.next_at,
          row_number() OVER (PARTITION BY room.connection_id ORDER BY a.next_at, a.id) <= room.kept AS first
        FROM room
        LEFT JOIN (SELECT connection_id, count(*) AS due FROM media GROUP BY connection_id) m
          ON m.connection_id = room.connection_id
        CROSS JOIN LATERAL (
          SELECT id, next_at FROM assets
          WHERE connection_id = room.connection_id AND company_id = room.company_id AND ${ofLooks} AND next_at <= now()
          ORDER BY next_at LIMIT least(room.free, greatest(room.kept, room.free - coalesce(m.due, 0), 0))
          FOR UPDATE SKIP LOCKED
        ) a
      ), due AS (
        SELECT id, free, row_number() OVER (PARTITION BY connection_id
          ORDER BY part, upload_date DESC NULLS LAST, next_at, id) AS place
        FROM (
          SELECT connection_id, free, id, 1 AS part, upload_date, NULL AS next_at FROM media
          UNION ALL
          SELECT connection_id, free, id, CASE WHEN first THEN 0 ELSE 2 END, NULL, next_at FROM looks
        ) AS them
      )
      UPDATE assets SET queued_at = now() FROM due WHERE assets.id = due.id AND due.place <= due.free
      RETURNING assets.id, assets.state, assets.turn, due.place, ${traceparent} /* prepared: dispatch */`.execute(tx);
    return rows.sort((a, b) => a.place - b.place);
  });
}
