import { sql } from 'kysely';
import { prepared } from '../database/prepared.ts';
import type { Asset, Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import { inIndexOrder, isQueued, notLeased, workable } from './leases.ts';

/** An asset to be queued. Its last lease number (`lease`) distinguishes its job from an earlier one. */
export interface QueuedAsset extends Pick<Asset, 'id' | 'state' | 'lease'> {
  traceparent?: string | null;
}

/** The trace of the last sync that found an asset new or changed. */
const traceparent = sql`(SELECT traceparent FROM syncs WHERE syncs.id = assets.sync_id) AS traceparent`;

/** Slots of each connection on the queue, unless its settings set another number or its adaptive limit is lower. `only`: these connections. */
export interface Slots {
  perConnection: number;
  only?: string[] | undefined;
}

/** Waiting media, and waiting follow-up checks. Must be worded like the conditions of the partial indexes. */
const ofMedia = sql`state <> 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL`;
const ofChecks = sql`state = 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL`;

/**
 * Connections with waiting media or a due follow-up check. Jumps through the indexes from one connection to the next, and
 * reads the index of checks only if any is due.
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
    ), checks AS (
      (SELECT connection_id, company_id, next_at FROM assets WHERE ${ofChecks} AND connection_id IS NOT NULL
        AND (SELECT next_at FROM assets WHERE ${ofChecks} ORDER BY next_at LIMIT 1) <= now()
      ${order}, next_at LIMIT 1)
      UNION ALL
      SELECT next.* FROM checks AS here CROSS JOIN LATERAL (
        SELECT connection_id, company_id, next_at FROM assets
        WHERE ${ofChecks} AND (connection_id, company_id) > (here.connection_id, here.company_id) ${order}, next_at LIMIT 1
      ) AS next
    )
    SELECT connection_id FROM media UNION SELECT connection_id FROM checks WHERE next_at <= now()`.execute(tx);
  return rows.map(({ connectionId }) => connectionId);
}

/**
 * Takes due assets for the queue: for each active connection as many as it has free slots, in rotation (the first of every
 * connection before the second of any). Media comes newest first. Follow-up checks, longest due first, get the slots without
 * media, and at least a quarter of all; a single slot is for them one time in four, at random. Assets that their connection can
 * no longer read are not taken. Undefined while another process dispatches.
 */
export async function dispatch(db: Database, slots: Slots): Promise<QueuedAsset[] | undefined> {
  return db.transaction().execute(async (tx) => {
    const lock = await sql<{ mine: boolean }>`
      SELECT pg_try_advisory_xact_lock(7412) AS mine, ${inIndexOrder}`.execute(tx);
    if (!lock.rows[0]!.mine) return undefined;
    const connections = slots.only ?? (await waiting(tx));
    if (connections.length === 0) return [];
    const { rows } = await prepared(
      tx,
      sql<QueuedAsset & { rank: number }>`
      -- The jobs of each connection on the queue.
      WITH queued AS MATERIALIZED (
        SELECT connection_id, count(*) AS jobs, count(*) FILTER (WHERE state = 'mirrored') AS checks
        FROM unnest(${connections}::text[]) AS c (connection_id) CROSS JOIN LATERAL (
          SELECT state FROM assets WHERE connection_id = c.connection_id AND ${isQueued} ORDER BY queued_at
        ) AS job GROUP BY connection_id
      ), -- How many it may have.
      slots AS MATERIALIZED (
        SELECT id, least(coalesce((settings->>'concurrency')::int, ${slots.perConnection}), (adaptive_limit->>'limit')::int) AS most, random() < 0.25 AS fourth FROM connections
        WHERE id = ANY(${connections}::text[]) AND status = 'active' AND (delayed_until IS NULL OR delayed_until <= now())
      ), -- Of each company: how many slots its connection has free, and how many of them are reserved for follow-up checks.
      spare AS MATERIALIZED (
        SELECT access.connection_id, access.company_id, slots.most - coalesce(queued.jobs, 0) AS free,
          CASE WHEN slots.most = 1 THEN slots.fourth::int ELSE ceil(slots.most / 4.0) END - coalesce(queued.checks, 0) AS reserved
        FROM access JOIN slots ON slots.id = access.connection_id
        LEFT JOIN queued ON queued.connection_id = slots.id
        WHERE access.connection_id = ANY(${connections}::text[]) AND access.lost_at IS NULL
          AND slots.most > coalesce(queued.jobs, 0)
      ), -- Due media, newest first.
      media AS MATERIALIZED (
        SELECT spare.connection_id, spare.free, a.id, a.upload_date
        FROM spare CROSS JOIN LATERAL (
          SELECT id, upload_date FROM assets
          WHERE connection_id = spare.connection_id AND company_id = spare.company_id AND ${ofMedia} AND next_at <= now()
            AND ${notLeased}
          ORDER BY upload_date DESC NULLS LAST, id LIMIT spare.free
          FOR UPDATE SKIP LOCKED
        ) a
      ), -- Due follow-up checks, longest due first: as many as are reserved, or as media leaves free. The first are reserved.
      checks AS (
        SELECT spare.connection_id, spare.free, a.id, a.next_at,
          row_number() OVER (PARTITION BY spare.connection_id ORDER BY a.next_at, a.id) <= spare.reserved AS first
        FROM spare
        LEFT JOIN (SELECT connection_id, count(*) AS due FROM media GROUP BY connection_id) m
          ON m.connection_id = spare.connection_id
        CROSS JOIN LATERAL (
          SELECT id, next_at FROM assets
          WHERE connection_id = spare.connection_id AND company_id = spare.company_id AND ${ofChecks} AND next_at <= now()
          ORDER BY next_at LIMIT least(spare.free, greatest(spare.reserved, spare.free - coalesce(m.due, 0), 0))
          FOR UPDATE SKIP LOCKED
        ) a
      ), -- All of them by rank within their connection: reserved checks, media, other checks.
      due AS (
        SELECT id, free, row_number() OVER (PARTITION BY connection_id
          ORDER BY part, upload_date DESC NULLS LAST, next_at, id) AS rank
        FROM (
          SELECT connection_id, free, id, 1 AS part, upload_date, NULL AS next_at FROM media
          UNION ALL
          SELECT connection_id, free, id, CASE WHEN first THEN 0 ELSE 2 END, NULL, next_at FROM checks
        ) AS them
      )
      UPDATE assets SET queued_at = now() FROM due WHERE assets.id = due.id AND due.rank <= due.free
      RETURNING assets.id, assets.state, assets.lease, due.rank, ${traceparent}`,
    );
    return rows.sort((a, b) => a.rank - b.rank);
  });
}

/**
 * Assets to be queued again: their lease has expired because the worker was killed (`lost`, which their history says), or no
 * worker took their job for `staleMs`. Those whose connection may not work now leave the queue instead.
 */
export async function overdue(db: Database, staleMs: number): Promise<QueuedAsset[]> {
  const { rows } = await sql<QueuedAsset & { queued: boolean }>`
    WITH late AS MATERIALIZED (
      SELECT id, sync_id, lease_until > queued_at AS lost FROM assets
      WHERE ${isQueued} AND ${notLeased}
        AND (queued_at < lease_until OR queued_at < ${msAgo(staleMs)})
      ORDER BY queued_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    ), logged AS (
      INSERT INTO asset_history (asset_id, kind, sync_id) SELECT id, 'lost', sync_id FROM late WHERE lost
    )
    UPDATE assets SET queued_at = CASE WHEN ${workable} THEN now() END FROM late WHERE assets.id = late.id
    RETURNING assets.id, state, lease, queued_at IS NOT NULL AS queued, ${traceparent}`.execute(db);
  return rows.filter((row) => row.queued);
}
