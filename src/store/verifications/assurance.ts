import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import type { AssetState, Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import type { Link } from './manifests.ts';

/** Undefined: all connections. */
type Scope = string | undefined;

const within = (connectionId: Scope) => (connectionId === undefined ? sql`true` : sql`connection_id = ${connectionId}`);

/** Assets that are not mirrored for the same reason. */
export interface Missing {
  state: AssetState;
  skipped: boolean;
  /** The reason of one of the assets. */
  reason: Reason | null;
  assets: number;
  /** The size in the library; `unknown`: how many assets have no size there. */
  bytes: number;
  unknown: number;
  /** When the first of the assets was found. */
  since: Date;
}

/** The assets that are not mirrored, by reason, the largest number first. Reads only these assets. */
export async function notMirrored(db: Database, connectionId: Scope): Promise<Missing[]> {
  const { rows } = await sql<Missing>`
    SELECT state, skipped, (array_agg(reason))[1] AS reason, count(*) AS assets,
      coalesce(sum(size), 0)::bigint AS bytes, count(*) FILTER (WHERE size IS NULL) AS unknown, min(first_seen_at) AS since
    FROM assets WHERE state <> 'mirrored' AND state <> 'gone' AND ${within(connectionId)}
    GROUP BY state, skipped, reason->>'code' ORDER BY count(*) DESC, state`.execute(db);
  return rows;
}

/** The oldest "last verified" time of the files of a connection (null: it has none), and how many cannot be verified. */
export async function verification(db: Database, connectionId: string) {
  const { rows } = await sql<{ oldest: Date | null; unverifiable: number }>`
    SELECT min(coalesce(verified_at, mirrored_at)) FILTER (WHERE unverifiable_at IS NULL) AS oldest,
      count(unverifiable_at) AS unverifiable
    FROM assets WHERE connection_id = ${connectionId} AND state IN ('mirrored', 'gone') AND media IS NOT NULL`.execute(
    db,
  );
  return rows[0]!;
}

/** When the mirror began, as far as the database knows. Undefined: it has neither connections nor copies. */
export async function begunAt(db: Database): Promise<Date | undefined> {
  const { rows } = await sql<{ at: Date | null }>`
    SELECT least((SELECT min(connected_at) FROM connections), (SELECT min(mirrored_at) FROM assets),
      (SELECT min(day)::timestamp AT TIME ZONE 'UTC' FROM manifests)) AS at`.execute(db);
  return rows[0]!.at ?? undefined;
}

/**
 * Counts what happened in a time. `changesMs`: how long changes are kept; `replaced` counts from `replacedSince` on; null: that
 * is after the time. `erased` is null for a connection: tombstones name none.
 */
export async function happened(
  db: Database,
  { from, to, changesMs, connectionId }: { from: Date; to: Date; changesMs: number; connectionId: Scope },
) {
  const isIn = (at: string, since = from) => sql`${sql.ref(at)} >= ${since} AND ${sql.ref(at)} < ${to}`;
  const { rows: assets } = await sql<{ mirrored: number; bytes: number; gone: number }>`
    SELECT count(*) FILTER (WHERE ${isIn('mirrored_at')}) AS mirrored,
      coalesce(sum(bytes) FILTER (WHERE ${isIn('mirrored_at')}), 0)::bigint AS bytes,
      count(*) FILTER (WHERE ${isIn('gone_at')}) AS gone
    FROM assets WHERE (${isIn('mirrored_at')} OR state = 'gone' AND ${isIn('gone_at')}) AND ${within(connectionId)}`.execute(
    db,
  );
  const { rows: erased } = await sql<{ count: number }>`
    SELECT count(*) AS count FROM tombstones WHERE ${isIn('erased_at')}`.execute(db);
  const { rows: kept } = await sql<{ since: Date }>`
    SELECT greatest(${from}::timestamptz, ${msAgo(changesMs)}, began_at) AS since FROM change_feed`.execute(db);
  const replacedSince = kept[0]!.since;
  const { rows: replaced } = await sql<{ count: number }>`
    SELECT count(*) AS count FROM asset_changes
    WHERE kind = 'replaced' AND ${isIn('at', replacedSince)} AND ${within(connectionId)}`.execute(db);
  return {
    ...assets[0]!,
    replaced: replacedSince < to ? replaced[0]!.count : null,
    replacedSince: replacedSince.toISOString(),
    erased: connectionId === undefined ? erased[0]!.count : null,
  };
}

/** From this manifest on, the database has all. Others are only in the bucket after a rebuild, or a restored backup. */
export async function firstManifest(db: Database): Promise<Pick<Link, 'number' | 'day'> | undefined> {
  const { rows } = await sql<Pick<Link, 'number' | 'day'>>`
    SELECT number, day::text AS day FROM manifests m
    WHERE NOT EXISTS (SELECT FROM manifests WHERE number = m.number - 1) ORDER BY number DESC LIMIT 1`.execute(db);
  return rows[0];
}

/** The manifests of these days, both included, oldest first. */
export async function manifestsOf(db: Database, first: string, last: string): Promise<Link[]> {
  const { rows } = await sql<Link>`
    SELECT number, day::text AS day, sha256, key_id, envelope FROM manifests
    WHERE day BETWEEN ${first}::date AND ${last}::date ORDER BY number`.execute(db);
  return rows;
}
