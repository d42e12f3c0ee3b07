import { sql } from 'kysely';
import { batched } from '../database/batch.ts';
import type { Asset, Database, Media, OwnedAsset, SidecarStates } from '../database/schema.ts';
import { free } from './due.ts';
import { newStepLog, type StepLog, told } from './history.ts';

/**
 * A worker's lease of an asset. `number` is the fencing token: writes are refused once another worker has the next lease.
 * `revision`, `size` and `uploadDate` are as they were when the lease began; a listing may have changed them since.
 */
export interface AssetLease {
  assetId: string;
  number: number;
  revision: number;
  size: number | null;
  uploadDate: number | null;
  stepLog: StepLog;
}

export function leaseOf(asset: Asset & Pick<OwnedAsset, 'leasedAt'>): AssetLease {
  const { id, lease, revision, size, uploadDate, leasedAt } = asset;
  return { assetId: id, number: lease, revision, size, uploadDate, stepLog: newStepLog(leasedAt) };
}

/** The lease is still its worker's: neither taken over nor given back. */
export const inHand = ({ assetId, number }: AssetLease) =>
  sql<boolean>`id = ${assetId} AND lease = ${number}::int AND lease_until IS NOT NULL`;

/** An asset has work due, and its connection may do it now. */
export const workable = sql`(assets.next_at IS NOT NULL AND EXISTS (
  SELECT 1 FROM connections c JOIN access a ON a.connection_id = c.id
  WHERE c.id = assets.connection_id AND c.status = 'active' AND (c.parked_until IS NULL OR c.parked_until <= now())
    AND a.company_id = assets.company_id AND a.lost_at IS NULL))`;

/** A pending asset is `transferring` from here on. */
const begins = sql`lease = lease + 1, state = CASE state WHEN 'pending' THEN 'transferring' ELSE state END`;
const ofItsConnection = sql`(SELECT settings FROM connections WHERE id = assets.connection_id) AS settings`;

/** What the bucket has of an asset, and in how many ms its next follow-up check is due; null: none is. */
export interface Mirrored extends SidecarStates {
  detail: Record<string, unknown>;
  recordKey: string;
  waitMs: number | null;
  attempts?: number;
  reason?: string | null;
  /** The media, if an `asset.mirrored` event is to be sent for it. */
  tell?: Media | undefined;
}

/** How leases begin and end; calls at the same moment share a statement. */
export function leaseRecords(db: Database) {
  const take = batched(async (asked: { id: string; leaseMs: number }[]) => {
    const ids = asked.map(({ id }) => id);
    // All workers ask for the same.
    const leaseMs = Math.min(...asked.map(({ leaseMs }) => leaseMs));
    // Locks in the order of ids, like every other statement, so that there are no deadlocks; and selects by ids alone, or the
    // planner would read all queued assets.
    const { rows } = await sql<OwnedAsset>`
      WITH locked AS MATERIALIZED (
        SELECT * FROM assets WHERE id = ANY(${ids}::text[]) ORDER BY id FOR UPDATE
      ), free AS (
        SELECT assets.id FROM locked AS assets WHERE queued_at IS NOT NULL AND ${free} AND ${workable}
      )
      UPDATE assets SET ${begins}, lease_until = now() + ${leaseMs} * interval '1 ms'
      FROM free WHERE assets.id = free.id AND assets.id = ANY(${ids}::text[])
      RETURNING assets.*, now() AS leased_at, ${ofItsConnection}`.execute(db);
    const taken = new Map(rows.map((row) => [row.id, row]));
    const left = ids.filter((id) => !taken.has(id));
    if (left.length > 0) {
      // If this fails, the dispatcher finds these assets when their jobs are overdue.
      await sql`
        WITH stopped AS (
          SELECT id FROM assets WHERE id = ANY(${left}::text[]) AND queued_at IS NOT NULL AND ${free} AND NOT ${workable}
          ORDER BY id FOR UPDATE
        )
        UPDATE assets SET queued_at = NULL FROM stopped WHERE assets.id = stopped.id`
        .execute(db)
        .catch(() => {});
    }
    // Each row is returned to one caller only; duplicates get undefined.
    return ids.map((id) => {
      const row = taken.get(id);
      taken.delete(id);
      return row;
    });
  });

  /** Ends leases whose asset is mirrored. Returns for each whether it was still its worker's. */
  async function endMirrored(ends: { lease: AssetLease; done: Mirrored }[], on: Database = db): Promise<boolean[]> {
    const found = ends.map(({ lease, done }) => ({
      id: lease.assetId,
      lease: lease.number,
      revision: lease.revision,
      size: lease.size,
      upload_date: lease.uploadDate,
      wait_ms: done.waitMs,
      attempts: done.attempts ?? 0,
      reason: done.reason ?? null,
      record_key: done.recordKey,
      detail: done.detail,
      transcript_state: done.transcriptState,
      transcript_keys: done.transcriptKeys,
      transcript_deadline: done.transcriptDeadline,
      thumbnail_state: done.thumbnailState,
      thumbnail: done.thumbnail,
      sidecar_files: done.sidecarFiles,
      began: lease.stepLog.began,
      told: told(lease, { outcome: 'mirrored', reason: done.reason ?? null, waitMs: done.waitMs }),
    }));
    const { rows } = await sql<{ id: string; lease: number }>`
      WITH found AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(${JSON.stringify(found)}::jsonb) AS found (
          id text, lease int, revision int, size bigint, upload_date bigint, wait_ms float8, attempts int, reason text,
          record_key text, detail jsonb, transcript_state text, transcript_keys jsonb, transcript_deadline timestamptz,
          thumbnail_state text, thumbnail jsonb, sidecar_files jsonb, began timestamptz, told jsonb)
      ), held AS MATERIALIZED (
        SELECT a.id FROM assets a JOIN found USING (id, lease)
        WHERE a.lease_until IS NOT NULL ORDER BY a.id FOR UPDATE OF a
      ), ended AS (
        UPDATE assets SET queued_at = NULL, lease_until = NULL,
          state = CASE WHEN assets.size IS NOT DISTINCT FROM found.size
            AND assets.upload_date IS NOT DISTINCT FROM found.upload_date THEN 'mirrored' ELSE 'pending' END,
          next_at = CASE WHEN assets.revision = found.revision THEN now() + found.wait_ms * interval '1 ms' ELSE now() END,
          attempts = found.attempts, waits = 0, reason = found.reason, processing_since = NULL,
          record_key = found.record_key, superseded = '{}', detail = found.detail,
          mirrored_at = coalesce(mirrored_at, now()),
          transcript_state = found.transcript_state, transcript_keys = found.transcript_keys,
          transcript_deadline = found.transcript_deadline,
          thumbnail_state = found.thumbnail_state, thumbnail = found.thumbnail, sidecar_files = found.sidecar_files
        FROM held JOIN found USING (id) WHERE assets.id = held.id
        RETURNING assets.id, assets.lease, assets.sync_id, found.began, found.told
      ), logged AS (
        INSERT INTO asset_history (asset_id, at, kind, sync_id, data) SELECT id, began, 'attempt', sync_id, told FROM ended
      )
      SELECT id, lease FROM ended`.execute(on);
    const ended = new Set(rows.map(({ id, lease }) => `${lease} ${id}`));
    return ends.map(({ lease }) => ended.has(`${lease.number} ${lease.assetId}`));
  }

  return { take, endMirrored, end: batched((ends: Parameters<typeof endMirrored>[0]) => endMirrored(ends)) };
}
