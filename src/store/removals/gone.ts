import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { msAgo } from '../database/time.ts';
import { addEvent } from '../events/add-event.ts';
import { protectedByHold } from './holds.ts';

const day = 86_400_000;

/** Assets that will have been gone for `retentionMs` in `aheadMs`. Written like the index `assets_gone`, which it uses. */
const due = (retentionMs: number, aheadMs = 0): RawBuilder<boolean> => sql`
  a.state = 'gone' AND a.gone_at < ${msAgo(retentionMs - aheadMs)} AND a.media IS NOT NULL AND NOT ${protectedByHold}`;

/** An operator has accepted the removal of everything that was due at that time. */
const accepted = (retentionMs: number) =>
  sql`coalesce(a.gone_at <= b.accepted_at - ${retentionMs} * interval '1 ms', false)`;

/** A company with assets to be removed. */
export interface CompanyDue {
  companyId: string;
  /** Due without an operator's acceptance, and due with it. */
  fresh: number;
  accepted: number;
  /** Removed without acceptance in the last 24 hours. */
  today: number;
  /** Assets with media in the bucket. */
  mirrored: number;
  /** Whether it is held already. */
  isHeld: boolean;
}

export async function companiesDue(db: Database, retentionMs: number): Promise<CompanyDue[]> {
  const { rows } = await sql<CompanyDue>`
    SELECT d.*, b.held_at IS NOT NULL AS is_held,
      (SELECT count(*) FROM events e WHERE e.kind = 'asset.removed' AND e.at > ${msAgo(day)}
        AND e.data->>'companyId' = d.company_id AND NOT e.data ? 'accepted') AS today,
      (SELECT count(*) FROM assets m WHERE m.company_id = d.company_id AND m.media IS NOT NULL) AS mirrored
    FROM (
      SELECT a.company_id, count(*) FILTER (WHERE NOT ${accepted(retentionMs)}) AS fresh,
        count(*) FILTER (WHERE ${accepted(retentionMs)}) AS accepted
      FROM assets a LEFT JOIN removal_brakes b USING (company_id) WHERE ${due(retentionMs)} GROUP BY a.company_id
    ) AS d LEFT JOIN removal_brakes b USING (company_id) ORDER BY d.company_id`.execute(db);
  return rows;
}

/** A page of the assets of a company that are to be removed, in the order of ids. */
export async function removable(
  db: Database,
  at: { companyId: string; retentionMs: number; onlyAccepted: boolean; after: string; limit: number },
): Promise<{ id: string; accepted: boolean }[]> {
  const { rows } = await sql<{ id: string; accepted: boolean }>`
    SELECT a.id, ${accepted(at.retentionMs)} AS accepted
    FROM assets a LEFT JOIN removal_brakes b USING (company_id)
    WHERE a.company_id = ${at.companyId} AND a.id > ${at.after} AND ${due(at.retentionMs)}
      AND (NOT ${at.onlyAccepted}::boolean OR ${accepted(at.retentionMs)})
    ORDER BY a.id LIMIT ${at.limit}`.execute(db);
  return rows;
}

/** Holds the removals of a company until an operator accepts them. Adds an event. */
export async function holdCompany(db: Database, { companyId, fresh, today, mirrored }: CompanyDue): Promise<void> {
  await db.transaction().execute(async (tx) => {
    await sql`
      INSERT INTO removal_brakes (company_id, held_at) VALUES (${companyId}, now())
      ON CONFLICT (company_id) DO UPDATE SET held_at = now()`.execute(tx);
    await addEvent(tx, { kind: 'company.removal_held', data: { companyId, assets: fresh, today, mirrored } });
  });
}

/** The removals of a company are no longer too many, for instance because assets are back. */
export async function releaseCompany(db: Database, companyId: string): Promise<void> {
  await sql`UPDATE removal_brakes SET held_at = NULL WHERE company_id = ${companyId}`.execute(db);
}

/** Accepts the removal of what is due now. False: the company is not held. */
export async function acceptRemoval(db: Database, companyId: string): Promise<boolean> {
  const { rows } = await sql`
    UPDATE removal_brakes SET accepted_at = now(), held_at = NULL
    WHERE company_id = ${companyId} AND held_at IS NOT NULL RETURNING company_id`.execute(db);
  return rows.length > 0;
}

/** What is removed until `aheadMs` from now: totals, and the first assets. */
export async function upcoming(db: Database, retentionMs: number, aheadMs: number, limit: number) {
  const [totals, first, held] = await Promise.all([
    sql<{ assets: number; bytes: number }>`
      SELECT count(*) AS assets, coalesce(sum(a.bytes), 0)::bigint AS bytes FROM assets a
      WHERE ${due(retentionMs, aheadMs)}`.execute(db),
    sql<{ id: string; name: string | null; companyId: string; bytes: number | null; at: Date }>`
      SELECT a.id, a.name, a.company_id, a.bytes, a.gone_at + ${retentionMs} * interval '1 ms' AS at FROM assets a
      WHERE ${due(retentionMs, aheadMs)} ORDER BY a.gone_at, a.id LIMIT ${limit}`.execute(db),
    sql<{ companyId: string; heldAt: Date }>`
      SELECT company_id, held_at FROM removal_brakes WHERE held_at IS NOT NULL ORDER BY company_id`.execute(db),
  ]);
  return { ...totals.rows[0]!, first: first.rows, held: held.rows };
}
