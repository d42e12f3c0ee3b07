import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { createLog } from '../src/floor/log.ts';
import { createSealer } from '../src/oauth/seal.ts';
import { openStore } from '../src/store/store.ts';
import { copyRecordBase } from './copies.ts';
import type { NullSource } from './null-source.ts';

const log = createLog({ level: 'silent', pretty: false });
export const encryptionKey = Buffer.alloc(32, 1);

/** The tables, before any mirror has made them. */
export async function migrate(url: string): Promise<void> {
  await (await openStore({ url, log })).close();
}

/** Adds up the counts of rows that were written without the mirror, as workers do at intervals. */
export async function foldCounts(url: string): Promise<void> {
  const store = await openStore({ url, log });
  await store.counts.fold();
  await store.close();
}

/**
 * Connections in the records as if users `from` to `to` of the null source had connected. `highWaterMark`: everything up to there
 * is listed. A mirror that starts afterwards finds them.
 */
export async function addConnections(
  db: pg.Pool,
  from: number,
  to: number,
  { highWaterMark, shared = false }: { highWaterMark: number | null; shared: boolean | undefined },
): Promise<void> {
  const sealer = createSealer([encryptionKey]);
  for (let first = from; first <= to; first += 5000) {
    const users = Array.from({ length: Math.min(5000, to - first + 1) }, (_, i) => first + i);
    const tokens = users.map((n) =>
      sealer.seal(
        `tokens of user-${n}`,
        JSON.stringify({ accessToken: `svca_${n}`, refreshToken: `svcr_${n}`, clientId: 'bench' }),
      ),
    );
    await db.query(
      `INSERT INTO connections (id, user_id, user_name, user_email, status, tokens, access_expires_at)
       SELECT 'connection-' || n, 'user-' || n, 'User ' || n, n || '@example.com', 'active', sealed, now() + interval '1 year'
       FROM unnest($1::int[], $2::text[]) AS made (n, sealed)`,
      [users, tokens],
    );
    await db.query(
      `INSERT INTO companies SELECT 'company-' || n, 'Company ' || n FROM unnest($1::int[]) AS n ON CONFLICT DO NOTHING`,
      [shared ? [1] : users],
    );
    await db.query(
      `INSERT INTO access (connection_id, company_id, high_water_mark)
       SELECT 'connection-' || n, 'company-' || CASE WHEN $3 THEN 1 ELSE n END, $2::bigint FROM unnest($1::int[]) AS n`,
      [users, highWaterMark, shared],
    );
  }
}

/** All assets of these users of the null source in the records, as if they had been listed and mirrored. */
export async function addMirrored(
  { url, db }: { url: string; db: pg.Pool },
  { files, bytes, newest, stepMs }: NullSource,
  from: number,
  to: number,
): Promise<void> {
  for (let n = from; n <= to; n++) {
    await db.query(
      `INSERT INTO assets (id, connection_id, company_id, project_id, asset_type, name, size, upload_date, listed, state, media,
         bytes, record_key, sidecar_files, mirrored_at, transcript_state, thumbnail_state)
       SELECT 'asset-' || n || '-' || i, 'connection-' || n, 'company-' || n, 'project-' || i % 40, 'documents',
         'file-' || i || '.bin', $2::bigint, $3::bigint - i * $4::bigint,
         jsonb_build_object('id', 'asset-' || n || '-' || i, 'name', 'file-' || i || '.bin', 'mimeType', 'application/octet-stream',
           'assetType', 'documents', 'size', $2::bigint, 'projectId', 'project-' || i % 40, 'projectName', 'Project ' || i % 40,
           'tags', jsonb_build_array('one', 'two'), 'uploadDate', $3::bigint - i * $4::bigint, 'status', 'ready',
           'hasTranscript', false),
         'mirrored', jsonb_build_object('key', key, 'bytes', $2::bigint, 'variant', 'original',
           'checksums', jsonb_build_object('crc32', '00000000', 'sha256', repeat('0', 64)),
           'etag', repeat('0', 32), 'version', 'v'),
         $2::bigint, key || '.asset.json', jsonb_build_object(key || '.asset.json', jsonb_build_object(
           'bytes', $6::int + 2 * (length(n::text) + length(i::text)), 'etag', repeat('0', 32), 'crc32', '00000000',
           'sha256', repeat('0', 64))),
         now(), 'none', 'none'
       FROM (SELECT $1::int AS n) AS company, generate_series(0, $5::int - 1) AS i,
         concat('company-', lpad(n::text, 6, '0'), '/k/', lpad(i::text, 9, '0')) AS key`,
      [n, bytes, newest, stepMs, files, copyRecordBase(bytes)],
    );
  }
  // The copies count as old: the feed no longer has them.
  await db.query('TRUNCATE asset_changes');
  await foldCounts(url);
  await db.query('VACUUM ANALYZE');
}

/**
 * Resolves when this number of assets is mirrored, with the time by `performance.now()`.
 * @throws Error if one of them fails, or after five minutes without another one
 */
export async function untilMirrored(db: pg.Pool, count: number): Promise<number> {
  let [last, since] = [-1, performance.now()];
  for (;;) {
    const { rows } = await db.query(
      `SELECT coalesce(sum(assets) FILTER (WHERE state = 'mirrored'), 0)::int AS n,
         coalesce(sum(assets) FILTER (WHERE state = 'failed'), 0)::int AS failed
       FROM (SELECT state, assets FROM asset_counts UNION ALL SELECT state, assets FROM asset_count_changes) AS counted`,
    );
    const { n, failed } = rows[0];
    if (n >= count) return performance.now();
    if (failed > 0) {
      const { rows } = await db.query("SELECT min(reason::text) AS reason FROM assets WHERE state = 'failed'");
      throw new Error(`not mirrored: ${rows[0].reason}`);
    }
    if (n > last) [last, since] = [n, performance.now()];
    else if (performance.now() - since > 300_000) throw new Error(`${n} of ${count} assets mirrored, and no more come`);
    await sleep(50);
  }
}
