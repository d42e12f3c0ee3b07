import { type RawBuilder, sql } from 'kysely';
import { type HeldChanges, sampleSize } from '../../floor/held-changes.ts';
import { dayMs } from '../../floor/units.ts';
import { renewElsewhere } from '../changes/changes.ts';
import { setHeld } from '../companies/held-changes.ts';
import type { Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import { protectedByHold } from './holds.ts';

/** Assets that were gone before a time, and may be removed. Written like the index `assets_gone`, which it uses. */
const goneBefore = (time: RawBuilder<unknown>): RawBuilder<boolean> => sql`
  a.state = 'gone' AND a.gone_at < ${time} AND a.media IS NOT NULL AND NOT ${protectedByHold}`;

/**
 * The asset's connection has listed the whole company in the last day, and would have found the asset if it were back. If full
 * syncs are rarer, assets are removed only in the day after a full sync.
 */
const listedLately = sql`EXISTS (
  SELECT FROM access x JOIN connections r ON r.id = x.connection_id AND r.status = 'active'
  WHERE (x.connection_id, x.company_id) = (a.connection_id, a.company_id) AND x.lost_at IS NULL AND x.listed_at > ${msAgo(dayMs)})`;

/** An operator has accepted the removal. */
const accepted = sql`coalesce(a.gone_at <= c.removal_accepted_before, false)`;

type Of = { companyId: string; connectionId: string };

type Due = Of & HeldChanges & { settings: Record<string, unknown>; before: Date; notAccepted: number };

/**
 * Companies with assets to be removed: those that were gone before the time `before`. `notAccepted`: how many are due without an
 * operator's acceptance; `count`: these, and those that were removed so in the last 24 hours. `known`: how many are in the bucket, or were
 * removed in that time. `sample`: some that are due. The connection is one that can read the company, if there is one; of several, the
 * first that connected.
 */
export async function companiesDue(db: Database, retentionMs: number): Promise<Due[]> {
  // In a restored database, assets may be gone that are back by now: nothing is removed before the next full sync.
  await renewElsewhere(db);
  const { rows: times } = await sql<{ before: Date }>`SELECT ${msAgo(retentionMs)} AS before`.execute(db);
  const { before } = times[0]!;
  const { rows } = await sql<Due>`
    SELECT d.company_id, r.connection_id, r.settings, ${before}::timestamptz AS before,
      d.not_accepted, d.not_accepted + t.today AS count, m.mirrored + t.today AS known, d.sample
    FROM (
      SELECT a.company_id, count(*) FILTER (WHERE NOT ${accepted}) AS not_accepted,
        coalesce((array_agg(a.id ORDER BY a.id) FILTER (WHERE NOT ${accepted}))[1:${sampleSize}::int], '{}') AS sample
      FROM assets a JOIN companies c ON c.id = a.company_id
      WHERE ${goneBefore(sql`${before}::timestamptz`)} AND ${listedLately} GROUP BY a.company_id
    ) AS d CROSS JOIN LATERAL (
      SELECT x.connection_id, c.settings FROM access x JOIN connections c ON c.id = x.connection_id
      WHERE x.company_id = d.company_id
      ORDER BY (c.status <> 'disconnected' AND x.lost_at IS NULL) DESC, c.connected_at, c.id LIMIT 1
    ) AS r CROSS JOIN LATERAL (
      SELECT count(*) AS today FROM events e WHERE e.kind = 'asset.removed' AND e.at > ${msAgo(dayMs)}
        AND e.data->>'companyId' = d.company_id AND NOT e.data ? 'accepted'
    ) AS t CROSS JOIN LATERAL (
      SELECT count(*) AS mirrored FROM assets WHERE company_id = d.company_id AND media IS NOT NULL
    ) AS m ORDER BY d.company_id`.execute(db);
  return rows;
}

/** A page of the assets of a company that are to be removed now, in the order of ids. */
export async function removable(
  db: Database,
  at: { companyId: string; before: Date; onlyAccepted: boolean; after: string; limit: number },
) {
  const { rows } = await sql<{ id: string; accepted: boolean }>`
    SELECT a.id, ${accepted} AS accepted
    FROM assets a JOIN companies c ON c.id = a.company_id
    WHERE a.company_id = ${at.companyId} AND a.id > ${at.after} AND ${goneBefore(sql`${at.before}::timestamptz`)}
      AND ${listedLately} AND (NOT ${at.onlyAccepted}::boolean OR ${accepted})
    ORDER BY a.id LIMIT ${at.limit}`.execute(db);
  return rows;
}

/** Saves which removals of a company wait until an operator accepts them (undefined: none). True if there were none before. */
export async function setHeldRemovals(db: Database, of: Of, held: HeldChanges | undefined): Promise<boolean> {
  return db.transaction().execute((tx) => setHeld(tx, of, 'removed', held));
}

/**
 * Ends the held removals of a company once none of its due assets needs an operator's acceptance any more, even if the company was
 * not listed in the last day.
 */
export async function endHeldRemovals(db: Database, retentionMs: number): Promise<void> {
  const isDue = Number.isFinite(retentionMs) ? goneBefore(msAgo(retentionMs)) : sql`false`;
  await sql`
    UPDATE access SET held = held - 'removed'
    WHERE held ? 'removed' AND NOT EXISTS (
      SELECT FROM assets a JOIN companies c ON c.id = a.company_id
      WHERE a.company_id = access.company_id AND ${isDue} AND NOT ${accepted})`.execute(db);
}

/** Accepts the removal of everything of a company that was due `at` a time. */
export async function accept(
  db: Database,
  { companyId, at, retentionMs }: { companyId: string; at: Date; retentionMs: number },
): Promise<void> {
  if (Number.isFinite(retentionMs)) {
    await sql`
      UPDATE companies SET removal_accepted_before =
        greatest(removal_accepted_before, ${at}::timestamptz - ${retentionMs} * interval '1 ms')
      WHERE id = ${companyId}`.execute(db);
  }
  await sql`UPDATE access SET held = held - 'removed' WHERE company_id = ${companyId} AND held ? 'removed'`.execute(db);
}

/** What is removed until `aheadMs` from now: totals, and the first assets. */
export async function upcoming(db: Database, retentionMs: number, aheadMs: number, limit: number) {
  const [totals, first, held] = await Promise.all([
    sql<{ assets: number; bytes: number }>`
      SELECT count(*) AS assets, coalesce(sum(a.bytes), 0)::bigint AS bytes FROM assets a
      WHERE ${goneBefore(msAgo(retentionMs - aheadMs))}`.execute(db),
    sql<{ id: string; name: string | null; companyId: string; bytes: number | null; at: Date }>`
      SELECT a.id, a.name, a.company_id, a.bytes, a.gone_at + ${retentionMs} * interval '1 ms' AS at FROM assets a
      WHERE ${goneBefore(msAgo(retentionMs - aheadMs))} ORDER BY a.gone_at, a.id LIMIT ${limit}`.execute(db),
    sql<Of & { companyName: string; held: HeldChanges & { since: string } }>`
      SELECT DISTINCT ON (c.id) c.id AS company_id, c.name AS company_name, x.connection_id, x.held->'removed' AS held
      FROM access x JOIN companies c ON c.id = x.company_id WHERE x.held ? 'removed'
      ORDER BY c.id, x.held->'removed'->>'since' DESC`.execute(db),
  ]);
  return { ...totals.rows[0]!, first: first.rows, held: held.rows };
}
