import { sql } from 'kysely';
import { clockToleranceMs } from '../../floor/clock.ts';
import { rowsWritten } from './results.ts';
import type { Database } from './schema.ts';
import { inMs as ahead } from './time.ts';

/** How far ahead times are planned at most, in milliseconds. */
export interface LongestWaits {
  /** Until a lease ends, unless its holder renews it. */
  lease: number;
  /** Until a delayed connection continues. */
  pause: number;
  /** Until the next attempt at an asset, or its next follow-up check. */
  asset: number;
  /** Until a transcript is given up. */
  transcript: number;
  /** Until the next attempt at a webhook delivery. */
  delivery: number;
  /** Until the next run of a chore. */
  chore: number;
}

/**
 * Corrects times further ahead than anything is planned, written while a clock was ahead: past events and due times become
 * now, and leases end as if renewed now. Locked connections, assets, files and deliveries are left to the next call. Returns the
 * corrected rows by table, if any.
 */
export async function correctFuture(db: Database, longestWaits: LongestWaits): Promise<Record<string, number>> {
  const rows: Record<string, number> = {};
  for (const [table, statement] of Object.entries(corrections(longestWaits))) {
    const corrected = rowsWritten(await statement.execute(db));
    if (corrected > 0) rows[table] = corrected;
  }
  return rows;
}

const isBeyond = (column: string, ms: number) => sql`${sql.ref(column)} > ${ahead(ms + clockToleranceMs)}`;

/** Not `least`, which would replace NULL. */
const corrected = (column: string, ms: number, value = ahead(0)) =>
  sql`${sql.ref(column)} = CASE WHEN ${isBeyond(column, ms)} THEN ${value} ELSE ${sql.ref(column)} END`;

/** The newest run decides what Assurance shows. One of the future would hide what later ones find. */
const correctRuns = (table: string, lease: number) => sql`
  UPDATE ${sql.table(table)} SET ${corrected('requested_at', 0)}, ${corrected('started_at', 0)}, ${corrected('finished_at', 0)},
    ${corrected('until', lease, ahead(lease))}
  WHERE ${isBeyond('requested_at', 0)} OR ${isBeyond('started_at', 0)} OR ${isBeyond('finished_at', 0)} OR ${isBeyond('until', lease)}`;

/** One statement for each table, or for each kind of time in it. */
function corrections(longestWaits: LongestWaits) {
  const { lease, pause, asset, transcript, delivery, chore } = longestWaits;
  const isWrong = sql`(${isBeyond('next_at', asset)} OR ${isBeyond('lease_until', lease)} OR ${isBeyond('queued_at', 0)}
    OR ${isBeyond('processing_since', 0)} OR ${isBeyond('transcript_deadline', transcript)})`;
  return {
    connections: sql`
      UPDATE connections SET ${corrected('delayed_until', pause)}, ${corrected('connected_at', 0)}, ${corrected('links_since', 0)},
        ${corrected('last_sync_at', 0)}, ${corrected('news_at', 0)}, ${corrected('scheduled_sync_at', 0)}, ${corrected('scheduled_full_at', 0)},
        ${corrected('refresh_until', lease, ahead(lease))}, ${corrected('sync_until', lease, ahead(lease))}
      WHERE id IN (
        SELECT id FROM connections
        WHERE ${isBeyond('delayed_until', pause)} OR ${isBeyond('connected_at', 0)} OR ${isBeyond('links_since', 0)}
          OR ${isBeyond('last_sync_at', 0)} OR ${isBeyond('news_at', 0)} OR ${isBeyond('scheduled_sync_at', 0)} OR ${isBeyond('scheduled_full_at', 0)}
          OR ${isBeyond('refresh_until', lease)} OR ${isBeyond('sync_until', lease)}
        ORDER BY id FOR UPDATE SKIP LOCKED)`,
    access: sql`UPDATE access SET listed_at = NULL WHERE ${isBeyond('listed_at', 0)}`,
    companies: sql`UPDATE companies SET removal_accepted_before = now() WHERE ${isBeyond('removal_accepted_before', 0)}`,
    // By connection, because the index of ended syncs begins with it.
    syncs: sql`
      UPDATE syncs SET ${corrected('requested_at', 0)}, ${corrected('started_at', 0)}, ${corrected('finished_at', 0)}
      WHERE id IN (
        SELECT id FROM syncs
        WHERE status IN ('waiting', 'running') AND (${isBeyond('requested_at', 0)} OR ${isBeyond('started_at', 0)})
        UNION ALL
        SELECT run.id FROM connections c CROSS JOIN LATERAL (
          SELECT id FROM syncs WHERE connection_id = c.id AND ${isBeyond('finished_at', 0)}) AS run)`,
    // Worded like the conditions of the partial indexes; otherwise all assets would be read.
    assets: sql`
      UPDATE assets SET ${corrected('next_at', asset)}, ${corrected('queued_at', 0)}, ${corrected('processing_since', 0)},
        ${corrected('transcript_deadline', transcript, ahead(transcript))}, ${corrected('lease_until', lease, ahead(lease))}
      WHERE id IN (
        SELECT id FROM assets WHERE id IN (
          SELECT id FROM assets WHERE state <> 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL AND ${isWrong}
          UNION ALL
          SELECT id FROM assets WHERE state = 'mirrored' AND next_at IS NOT NULL AND queued_at IS NULL AND ${isWrong}
          UNION ALL
          SELECT id FROM assets WHERE queued_at IS NOT NULL AND ${isWrong})
        ORDER BY id FOR UPDATE SKIP LOCKED)`,
    // Versions first: of two copies with times in the future, the current one stays the newer.
    versions: sql`
      UPDATE asset_versions SET mirrored_at = now() WHERE ${isBeyond('replaced_at', 0)} AND ${isBeyond('mirrored_at', 0)}`,
    // Otherwise a restore of a date would not find the file, and the scrub would omit it. `gone_at` stays: if the clock is far behind
    // for a moment, each would be corrected, and GONE_RETENTION would later remove the files too early.
    files: sql`
      UPDATE assets SET ${corrected('mirrored_at', 0)}, ${corrected('verified_at', 0)}, ${corrected('unverifiable_at', 0)}
      WHERE id IN (
        SELECT id FROM assets WHERE id IN (
          SELECT id FROM assets WHERE mirrored_at IS NOT NULL AND ${isBeyond('mirrored_at', 0)}
          UNION ALL
          SELECT id FROM assets WHERE state IN ('mirrored', 'gone') AND media IS NOT NULL AND unverifiable_at IS NULL
            AND coalesce(verified_at, mirrored_at) > ${ahead(clockToleranceMs)}
          UNION ALL
          SELECT id FROM assets WHERE state IN ('mirrored', 'gone') AND media IS NOT NULL AND ${isBeyond('unverifiable_at', 0)})
        ORDER BY id FOR UPDATE SKIP LOCKED)`,
    replacements: sql`
      UPDATE replacements SET ${corrected('found_at', 0)}, ${corrected('released_at', 0)}
      WHERE ${isBeyond('found_at', 0)} OR ${isBeyond('released_at', 0)}`,
    transcripts: sql`UPDATE transcripts SET due_at = now() WHERE ${isBeyond('due_at', pause)}`,
    verifications: correctRuns('verifications', lease),
    drills: correctRuns('drills', lease),
    scrub: sql`UPDATE scrub SET until = ${ahead(lease)} WHERE ${isBeyond('until', lease)}`,
    inventories: sql`UPDATE inventories SET until = ${ahead(lease)} WHERE ${isBeyond('until', lease)}`,
    // The day of such an inventory is in the future: the real inventory of that day is still to be written.
    inventoryDays: sql`DELETE FROM inventories WHERE ${isBeyond('written_at', 0)}`,
    // No hour would be filed until the `filed_hour` in the future.
    filedHour: sql`UPDATE change_feed SET filed_hour = date_trunc('hour', now(), 'UTC') WHERE ${isBeyond('filed_hour', 0)}`,
    deliveries: sql`
      UPDATE webhook_deliveries SET ${corrected('next_at', delivery)}, ${corrected('waiting_since', 0)}
      WHERE id IN (
        SELECT id FROM webhook_deliveries WHERE id IN (
          SELECT d.id FROM webhook_endpoints w CROSS JOIN LATERAL (
            SELECT id FROM webhook_deliveries
            WHERE endpoint_id = w.id AND state = 'waiting' AND ${isBeyond('next_at', delivery)}) AS d
          UNION ALL
          SELECT id FROM webhook_deliveries WHERE state = 'waiting' AND ${isBeyond('waiting_since', 0)})
        FOR UPDATE SKIP LOCKED)`,
    consents: sql`UPDATE consents SET next_at = now() WHERE ${isBeyond('next_at', pause)}`,
    chores: sql`UPDATE chores SET due_at = ${ahead(chore)} WHERE ${isBeyond('due_at', chore)}`,
  };
}
