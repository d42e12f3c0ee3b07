import { sql } from 'kysely';
import type { Reason } from '../../reasons.ts';
import type { AssetState, Database } from '../database/schema.ts';
import type { Link } from './manifests.ts';

/** Undefined: all connections. */
type Scope = string | undefined;

const within = (connectionId: Scope) => (connectionId === undefined ? sql`true` : sql`connection_id = ${connectionId}`);

/** Assets that are not mirrored for the same reason. */
export interface Missing {
  state: AssetState;
  skipped: boolean;
  /** Of one of them. */
  reason: Reason | null;
  assets: number;
  /** As the library says; `unknown`: how many have no size there. */
  bytes: number;
  unknown: number;
  /** When the first of them was found. */
  since: Date;
}

/** What is not mirrored, and why, the most first. Reads only assets that are not mirrored. */
export async function notMirrored(db: Database, connectionId: Scope): Promise<Missing[]> {
  const { rows } = await sql<Missing>`
    SELECT state, skipped IS NOT NULL AS skipped, (array_agg(reason))[1] AS reason, count(*) AS assets,
      coalesce(sum(size), 0)::bigint AS bytes, count(*) FILTER (WHERE size IS NULL) AS unknown, min(first_seen_at) AS since
    FROM assets WHERE state <> 'mirrored' AND state <> 'gone' AND ${within(connectionId)}
    GROUP BY state, skipped IS NOT NULL, reason->>'code' ORDER BY count(*) DESC, state`.execute(db);
  return rows;
}

/** When the file was verified that was not verified for the longest time; null: there are no files. */
export async function oldestVerification(db: Database, connectionId: string): Promise<Date | null> {
  const { rows } = await sql<{ at: Date | null }>`
    SELECT min(coalesce(verified_at, mirrored_at)) AS at FROM assets
    WHERE connection_id = ${connectionId} AND state IN ('mirrored', 'gone') AND media IS NOT NULL`.execute(db);
  return rows[0]!.at;
}

/** What happened in a time. Events are kept for 30 days. */
export async function happened(
  db: Database,
  { from, to, connectionId }: { from: Date; to: Date; connectionId: Scope },
) {
  const isIn = (at: string) => sql`${sql.ref(at)} >= ${from} AND ${sql.ref(at)} < ${to}`;
  const { rows: assets } = await sql<{ mirrored: number; bytes: number; gone: number }>`
    SELECT count(*) FILTER (WHERE ${isIn('mirrored_at')}) AS mirrored,
      coalesce(sum(bytes) FILTER (WHERE ${isIn('mirrored_at')}), 0)::bigint AS bytes,
      count(*) FILTER (WHERE ${isIn('gone_at')}) AS gone
    FROM assets WHERE (${isIn('mirrored_at')} OR state = 'gone' AND ${isIn('gone_at')}) AND ${within(connectionId)}`.execute(
    db,
  );
  const { rows: events } = await sql<{ kind: string; count: number }>`
    SELECT kind, count(*) AS count FROM events
    WHERE ${isIn('at')} AND kind NOT LIKE 'operator.%' AND ${within(connectionId)} GROUP BY kind ORDER BY kind`.execute(
    db,
  );
  const { rows: erased } = await sql<{ count: number }>`
    SELECT count(*) AS count FROM tombstones WHERE ${isIn('erased_at')}`.execute(db);
  return {
    ...assets[0]!,
    erased: erased[0]!.count,
    events: Object.fromEntries(events.map(({ kind, count }) => [kind, count])),
  };
}

/** The manifests of these days, both included, oldest first. */
export async function manifestsOf(db: Database, first: string, last: string): Promise<Link[]> {
  const { rows } = await sql<Link>`
    SELECT number, day::text AS day, sha256, key_id, envelope FROM manifests
    WHERE day BETWEEN ${first}::date AND ${last}::date ORDER BY number`.execute(db);
  return rows;
}
