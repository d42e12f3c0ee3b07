import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import type { Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

export const expectedKinds = ['processing', 'transcript', 'thumbnail', 'retry'] as const;
/** A video in transcoding, a missing transcript or thumbnail, or a failed asset that will be retried. */
type ExpectedKind = (typeof expectedKinds)[number];

export interface Expected {
  assetId: string;
  name: string | null;
  connectionId: string | null;
  kind: ExpectedKind;
  at: Date;
  reason: Reason | null;
}

/** Maximum of each kind that is returned. */
export const mostCounted = 1000;

const soon = (ms: number, where: ReturnType<typeof sql>) => sql`(
    SELECT id, name, connection_id, state, transcript_state, next_at, reason FROM assets
    WHERE ${where} AND next_at IS NOT NULL AND queued_at IS NULL AND next_at > now() AND next_at <= ${inMs(ms)}
    ORDER BY next_at LIMIT ${mostCounted})`;

/** Checks and attempts that are due within `ms`, soonest first, at most `mostCounted` of each kind. */
export async function dueWithin(db: Database, ms: number): Promise<Expected[]> {
  const { rows } = await sql<Expected>`
    SELECT id AS asset_id, name, connection_id, next_at AS at, reason,
      CASE state WHEN 'processing' THEN 'processing' WHEN 'pending' THEN 'retry'
        ELSE CASE transcript_state WHEN 'pending' THEN 'transcript' ELSE 'thumbnail' END END AS kind
    FROM (
      ${soon(ms, sql`state = 'processing'`)}
      UNION ALL ${soon(ms, sql`state = 'mirrored'`)}
      UNION ALL ${soon(ms, sql`state = 'pending' AND reason IS NOT NULL`)}
    ) AS soon ORDER BY next_at`.execute(db);
  return rows;
}
