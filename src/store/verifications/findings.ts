import { type RawBuilder, sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { isBeingRemoved } from '../assets/being-removed.ts';
import type { Database } from '../database/schema.ts';

/** How many open findings are returned with their keys. */
const mostExamples = 10;

/** An object that a verification or the scrub found missing, different or unreadable, and that was not repaired since. */
export interface OpenFinding {
  assetId: string;
  key: string;
  reason: Reason;
  /** When it was found last. */
  at: Date;
  /** Null: the scrub found it. */
  verificationId: string | null;
}

export interface Findings {
  /** Objects, and their assets, with open findings. */
  objects: number;
  assets: number;
  /** When the first of them was found. */
  oldest: Date | null;
  /** Some of them, the newest first. */
  examples: OpenFinding[];
}

/** All findings that are kept: lines of verifications, and events of the scrub. Events do not say how an object is repaired. */
const found = sql`
  SELECT l.asset_id, l.key, l.reason, l.reason ? 'version' AS is_version, v.id AS verification_id, v.started_at AS begun,
    coalesce(v.finished_at, 'infinity') AS ended, coalesce(v.finished_at, v.started_at) AS at,
    v.options @> '{"deep": true}' AND l.mark <> '-' AS needs_deep, l.remedy IS NOT NULL AS is_repairable,
    l.remedy IS NOT NULL AND EXISTS (
      SELECT FROM asset_history h WHERE h.asset_id = l.asset_id AND h.kind = 'repaired' AND h.at >= v.started_at
    ) AS is_repair_requested
  FROM verifications v JOIN verification_lines l ON l.verification_id = v.id
  WHERE (v.counts->>'missing' <> '0' OR v.counts->>'different' <> '0' OR v.counts->>'errors' <> '0')
    AND l.difference AND l.asset_id IS NOT NULL AND l.key IS NOT NULL
  UNION ALL
  SELECT e.asset_id, object->>'key', object->'reason', object->'reason' ? 'version', NULL, e.at, e.at, e.at, true, false,
    coalesce((e.data->>'repaired')::boolean, false)
  FROM events e CROSS JOIN jsonb_array_elements(e.data->'objects') AS object WHERE e.kind = 'asset.damaged'`;

/** A later verification compared it again, as deeply. A scheduled one omits superseded files, which cannot be repaired. */
const isCheckedAgain = sql`EXISTS (
  SELECT FROM verifications w
  WHERE w.status = 'done' AND w.started_at > f.begun AND (w.connection_id IS NULL OR w.connection_id = a.connection_id)
    AND (w.options @> '{"deep": true}' OR NOT f.needs_deep) AND (f.is_repairable OR NOT w.options ? 'scheduled'))`;

/** The superseded file is still kept. `version`: its name, see storage/keys.ts. */
const isKept = sql`EXISTS (
  SELECT FROM asset_versions v WHERE v.asset_id = f.asset_id AND NOT ${isBeingRemoved}
    AND to_char(v.replaced_at AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISSMS"Z"') = f.reason->>'version')`;

/** Nothing of the asset waits to be written again. */
const isWritten = sql`a.state = 'mirrored' AND a.record_key IS NOT NULL AND a.transcript_state <> 'pending'
  AND a.thumbnail_state <> 'pending'`;

/** `objects`: each object of these assets (`a`) that has findings, and whether one is open. */
const objectsOf = (scope: RawBuilder<unknown>) => sql`
  WITH found AS (${found}), judged AS (
    SELECT f.*, NOT ${isCheckedAgain} AND CASE WHEN f.is_version THEN ${isKept} ELSE NOT coalesce(
        -- Media that was read or stored since is intact. The rest of an asset is only read by a later verification or scrub.
        a.verified_at > CASE WHEN a.media->>'key' = f.key AND (f.is_repairable OR f.verification_id IS NULL)
          THEN f.begun ELSE f.ended END, false) END AS is_open,
      f.is_repair_requested AND NOT f.is_version AND a.media->>'key' <> f.key AND ${isWritten} AS is_rewritten
    FROM found f JOIN assets a ON a.id = f.asset_id WHERE ${scope}
  ), objects AS (
    SELECT asset_id, key, max(at) AS at, min(at) AS first_at, (array_agg(reason ORDER BY begun DESC))[1] AS reason,
      (array_agg(verification_id ORDER BY begun DESC) FILTER (WHERE is_open))[1] AS verification_id,
      coalesce(max(begun) FILTER (WHERE is_open)
        > coalesce(max(begun) FILTER (WHERE is_rewritten), '-infinity'), false) AS is_open
    FROM judged
    -- In a bucket with versions, a superseded file may have the key of the current one.
    GROUP BY asset_id, key, reason->>'version'
  )`;

/** Objects of an asset that are known to be wrong in the bucket, the newest finding first. */
export async function findingsOfAsset(db: Database, id: string): Promise<OpenFinding[]> {
  const { rows } = await sql<OpenFinding>`
    ${objectsOf(sql`a.id = ${id}`)}
    SELECT asset_id, key, reason, at, verification_id FROM objects WHERE is_open ORDER BY at DESC, key LIMIT ${mostExamples}`.execute(
    db,
  );
  return rows;
}

/** Objects that are known to be wrong in the bucket, of one connection or of all (undefined). */
export async function findings(db: Database, connectionId: string | undefined): Promise<Findings> {
  const scope = connectionId === undefined ? sql`true` : sql`a.connection_id = ${connectionId}`;
  const { rows } = await sql<Findings>`
    ${objectsOf(scope)}
    SELECT count(*) AS objects, count(DISTINCT asset_id) AS assets, min(first_at) AS oldest,
      (SELECT coalesce(jsonb_agg(jsonb_build_object('assetId', asset_id, 'key', key, 'reason', reason, 'at', at,
          'verificationId', verification_id)), '[]')
        FROM (SELECT * FROM objects WHERE is_open ORDER BY at DESC, key LIMIT ${mostExamples}) AS newest) AS examples
    FROM objects WHERE is_open`.execute(db);
  const { examples, ...counts } = rows[0]!;
  return { ...counts, examples: examples.map(({ at, ...example }) => ({ ...example, at: new Date(at) })) };
}
