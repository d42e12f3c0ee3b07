import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** The assets of one minute (epoch milliseconds). Minutes without assets are omitted. */
export interface Minute {
  minute: number;
  assets: number;
  bytes: number;
  failed: number;
}

/** Mirrored and failed assets by minute, from `from` until before `to` (epoch milliseconds). */
export async function minutes(db: Database, from: number, to: number): Promise<Minute[]> {
  const between = (column: string) =>
    sql`${sql.ref(column)} >= to_timestamp(${from / 1000}::float8) AND ${sql.ref(column)} < to_timestamp(${to / 1000}::float8)`;
  const { rows } = await sql<Minute>`
    SELECT (floor(extract(epoch FROM minute)) * 1000)::bigint AS minute, sum(assets)::bigint AS assets,
      sum(bytes)::bigint AS bytes, sum(failed)::bigint AS failed
    FROM (
      SELECT date_trunc('minute', mirrored_at) AS minute, count(*) AS assets, coalesce(sum(bytes), 0) AS bytes, 0 AS failed
      FROM assets WHERE ${between('mirrored_at')} GROUP BY 1
      UNION ALL
      SELECT date_trunc('minute', at), 0, 0, count(*) FROM events WHERE kind = 'asset.failed' AND ${between('at')} GROUP BY 1
    ) AS counted GROUP BY minute ORDER BY minute`.execute(db);
  return rows;
}
