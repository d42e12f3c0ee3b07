import { sql } from 'kysely';
import { dueMedia, free, mostPlaces, traceparent } from './dispatch.ts';
import { gathered } from './gather.ts';
import { newStory, type Story, told } from './happenings.ts';
import type { Artefacts, Asset, Database, Media, OwnedAsset } from './schema.ts';

/**
 * A worker's hold on an asset: all it writes is refused once another worker has the next turn. And what it found says
 * nothing of what a listing has seen since: `revision`, `size` and `uploadDate` are those of when the turn began.
 */
export interface Turn {
  assetId: string;
  turn: number;
  revision: number;
  size: number | null;
  uploadDate: number | null;
  story: Story;
}

export function turnOf({ id, turn, revision, size, uploadDate }: Asset): Turn {
  return { assetId: id, turn, revision, size, uploadDate, story: newStory() };
}

/** The turn is still its worker's: neither taken away nor given back. */
export const inHand = ({ assetId, turn }: Turn) =>
  sql<boolean>`id = ${assetId} AND turn = ${turn}::int AND turn_until IS NOT NULL`;

/** There is something to do for an asset, and its connection may do it now. */
export const workable = sql`(assets.next_at IS NOT NULL AND EXISTS (
  SELECT 1 FROM connections c JOIN access a ON a.connection_id = c.id
  WHERE c.id = assets.connection_id AND c.status = 'active' AND (c.parked_until IS NULL OR c.parked_until <= now())
    AND a.company_id = assets.company_id AND a.lost_at IS NULL))`;

/** What was pending is on its way from here on. */
const begins = sql`turn = turn + 1, state = CASE state WHEN 'pending' THEN 'transferring' ELSE state END`;
const ofItsConnection = sql`(SELECT settings FROM connections WHERE id = assets.connection_id) AS settings`;

/** What is in the bucket of an asset, and when it is looked at next. */
export interface Mirrored extends Artefacts {
  detail: Record<string, unknown>;
  recordKey: string;
  nextAt: Date | null;
  attempts?: number;
  reason?: string | null;
  /** The media in the bucket, where that is not saved yet. */
  media?: Media | undefined;
  /** The media that has just come to the bucket, for an event that says so. */
  tell?: Media | undefined;
}

/** How a worker goes on in the place of the asset whose turn it ends. */
export interface Onward {
  leaseMs: number;
  /** How many places a connection has, unless its settings or its pace say otherwise. */
  perConnection: number;
  /** How many turns the process has. */
  inHand: number;
}
export interface Ended {
  /** The turn was still its worker's, and has ended. */
  held: boolean;
  /** The turn that has begun in its place. */
  next?: OwnedAsset | undefined;
}

/** A job that has been on the queue for so long waits for a worker to be free: then nobody goes on past it. */
const waitedMs = 100;
/** With more than this in hand, one that is mirrored may wait a moment: the others go on. */
const many = 8;

/**
 * How turns begin and end: those of a moment by one statement. `quick`: see openQuick. Behind a pooler (not `direct`) none goes
 * on in the place of another: what finds the next might read all that is due.
 */
export function turnRecords(quick: Database, direct: boolean) {
  const take = gathered(async (asked: { id: string; leaseMs: number }[]) => {
    const ids = asked.map(({ id }) => id);
    const leases = asked.map(({ leaseMs }) => leaseMs);
    // In the order of ids, as all that locks several assets: so nobody waits in a circle. And by ids alone, lest the planner
    // read all that is queued.
    const { rows } = await sql<OwnedAsset>`
      WITH locked AS MATERIALIZED (
        SELECT * FROM assets WHERE id = ANY(${ids}::text[]) ORDER BY id FOR UPDATE
      ), free AS (
        SELECT assets.id FROM locked AS assets WHERE queued_at IS NOT NULL AND ${free} AND ${workable}
      )
      UPDATE assets SET ${begins}, turn_until = now() + interval '1 ms' * (
        SELECT min(ms) FROM unnest(${ids}::text[], ${leases}::int[]) AS asked (id, ms) WHERE asked.id = assets.id)
      FROM free WHERE assets.id = free.id AND assets.id = ANY(${ids}::text[])
      RETURNING assets.*, ${ofItsConnection} /* prepared: take */`.execute(quick);
    const taken = new Map(rows.map((row) => [row.id, row]));
    const left = ids.filter((id) => !taken.has(id));
    if (left.length > 0) {
      // The turns above are ours, whatever becomes of this: what stays queued is found when it is overdue.
      await sql`
        WITH stopped AS (
          SELECT id FROM assets WHERE id = ANY(${left}::text[]) AND queued_at IS NOT NULL AND ${free} AND NOT ${workable}
          ORDER BY id FOR UPDATE
        )
        UPDATE assets SET queued_at = NULL FROM stopped WHERE assets.id = stopped.id`
        .execute(quick)
        .catch(() => {});
    }
    // Whoever asks a second time for the same comes too late.
    return ids.map((id) => {
      const row = taken.get(id);
      taken.delete(id);
      return row;
    });
  });

  async function endAll(
    ends: { turn: Turn; done: Mirrored; onward?: Onward | undefined }[],
    on: Database = quick,
  ): Promise<Ended[]> {
    const ids = ends.map(({ turn }) => turn.assetId);
    const found = ends.map(({ turn, done, onward }) => ({
      id: turn.assetId,
      turn: turn.turn,
      revision: turn.revision,
      size: turn.size,
      upload_date: turn.uploadDate,
      next_at: done.nextAt,
      attempts: done.attempts ?? 0,
      reason: done.reason ?? null,
      record_key: done.recordKey,
      detail: done.detail,
      transcript_state: done.transcriptState,
      transcript_keys: done.transcriptKeys,
      transcript_deadline: done.transcriptDeadline,
      thumbnail_state: done.thumbnailState,
      thumbnail: done.thumbnail,
      beside: done.beside,
      media: done.media ?? null,
      began: turn.story.began,
      told: told(turn, { outcome: 'mirrored', reason: done.reason ?? null, nextAt: done.nextAt }),
      lease_ms: onward?.leaseMs,
      per_connection: onward?.perConnection,
    }));
    // A place that is passed on is the connection's own: neither the queue nor the dispatcher hears of it, and none is added.
    const { rows } = await sql<
      OwnedAsset & { ended: [id: string, turn: number, connectionId: string | null][] | null }
    >`
      WITH found AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(${JSON.stringify(found)}::jsonb) AS found (
          id text, turn int, revision int, size bigint, upload_date bigint, next_at timestamptz, attempts int, reason text,
          record_key text, detail jsonb, transcript_state text, transcript_keys jsonb, transcript_deadline timestamptz,
          thumbnail_state text, thumbnail jsonb, beside jsonb, media jsonb, began timestamptz, told jsonb,
          lease_ms int, per_connection int)
      ), held AS MATERIALIZED (
        SELECT a.id, a.connection_id, found.lease_ms, found.per_connection
        FROM assets a JOIN found ON found.id = a.id AND found.turn = a.turn
        WHERE a.id = ANY(${ids}::text[]) AND a.turn_until IS NOT NULL ORDER BY a.id FOR UPDATE OF a
      ), given AS (
        UPDATE assets SET queued_at = NULL, turn_until = NULL,
          state = CASE WHEN assets.size IS NOT DISTINCT FROM found.size
            AND assets.upload_date IS NOT DISTINCT FROM found.upload_date THEN 'mirrored' ELSE 'pending' END,
          next_at = CASE WHEN assets.revision = found.revision THEN found.next_at ELSE now() END,
          attempts = found.attempts, waits = 0, reason = found.reason, processing_since = NULL,
          record_key = found.record_key, outdated = '{}', detail = found.detail,
          mirrored_at = coalesce(mirrored_at, now()),
          transcript_state = found.transcript_state, transcript_keys = found.transcript_keys,
          transcript_deadline = found.transcript_deadline,
          thumbnail_state = found.thumbnail_state, thumbnail = found.thumbnail, beside = found.beside,
          media = coalesce(found.media, assets.media),
          bytes = coalesce((found.media->>'bytes')::bigint, assets.bytes),
          verified_at = CASE WHEN found.media IS NULL THEN assets.verified_at ELSE now() END
        FROM held JOIN found USING (id)
        WHERE assets.id = held.id AND assets.turn = found.turn AND assets.id = ANY(${ids}::text[])
        RETURNING assets.id, assets.turn, assets.connection_id, assets.sync_id, found.began, found.told
      ), story AS (
        INSERT INTO happenings (asset_id, at, kind, sync_id, data) SELECT id, began, 'turn', sync_id, told FROM given
      ), places AS MATERIALIZED (
        SELECT c.id AS connection_id, mine.lease_ms,
          least(mine.n, ${mostPlaces(sql`mine.per_connection`)} - queued.jobs + mine.n) AS free
        FROM (
          SELECT connection_id, count(*) AS n, min(lease_ms) AS lease_ms, min(per_connection) AS per_connection
          FROM held WHERE lease_ms IS NOT NULL GROUP BY connection_id
        ) mine
        JOIN connections c ON c.id = mine.connection_id
        CROSS JOIN LATERAL (
          SELECT count(*) AS jobs FROM assets WHERE queued_at IS NOT NULL AND connection_id = c.id) queued
        WHERE c.status = 'active' AND (c.parked_until IS NULL OR c.parked_until <= now())
          AND NOT EXISTS (
            SELECT 1 FROM assets WHERE queued_at < now() - ${waitedMs} * interval '1 ms' AND ${free})
      ), due AS MATERIALIZED (
        SELECT due.id, places.lease_ms FROM places CROSS JOIN LATERAL (
          SELECT a.id FROM access CROSS JOIN LATERAL (${dueMedia(sql`access`, sql`greatest(places.free, 0)`, sql`AND NOT id = ANY(${ids}::text[])`)}) a
          WHERE access.connection_id = places.connection_id AND access.lost_at IS NULL
          ORDER BY a.upload_date DESC NULLS LAST, a.id LIMIT greatest(places.free, 0)
        ) due
      ), next AS (
        UPDATE assets SET ${begins}, queued_at = now(), turn_until = now() + due.lease_ms * interval '1 ms'
        FROM due WHERE assets.id = due.id AND assets.id = ANY(ARRAY(SELECT id FROM due))
        RETURNING assets.*, ${ofItsConnection}, ${traceparent}
      )
      SELECT given.ended, next.*
      FROM (SELECT jsonb_agg(jsonb_build_array(id, turn, connection_id)) AS ended FROM given) AS given
        FULL JOIN next ON false /* prepared: end_turns */`.execute(on);
    const ended = new Map(
      rows.flatMap((row) => row.ended ?? []).map(([id, turn, connectionId]) => [`${turn} ${id}`, connectionId]),
    );
    const next = rows.filter((row) => row.id !== null);
    return ends.map(({ turn, onward }) => {
      const connectionId = ended.get(`${turn.turn} ${turn.assetId}`);
      const at = onward ? next.findIndex((row) => row.connectionId === connectionId) : -1;
      return { held: connectionId !== undefined, next: at < 0 ? undefined : next.splice(at, 1)[0] };
    });
  }

  const endTogether = gathered((ends: Parameters<typeof endAll>[0]) => endAll(ends));
  return {
    take,
    endAll,
    end: ({ onward, ...end }: Parameters<typeof endTogether>[0]) =>
      endTogether({ ...end, onward: direct ? onward : undefined }, (onward?.inHand ?? 0) > many),
  };
}
