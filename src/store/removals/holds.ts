import { type RawBuilder, sql } from 'kysely';
import { rowsWritten } from '../database/results.ts';
import type { Database } from '../database/schema.ts';

export const holdKinds = ['asset', 'project', 'connection'] as const;
type HoldKind = (typeof holdKinds)[number];

interface Hold {
  kind: HoldKind;
  id: string;
  reason: string | null;
  heldBy: string;
  heldAt: Date;
}

/**
 * Whether a hold protects the row `a` of `assets` from removal. A hold of a connection protects all assets of the companies that
 * it can read, or could read before: another connection may mirror them now.
 */
export const protectedByHold: RawBuilder<boolean> = sql`(
  EXISTS (SELECT FROM holds h WHERE (h.kind, h.id) IN (('asset', a.id), ('project', a.project_id), ('connection', a.connection_id)))
  OR EXISTS (SELECT FROM access x JOIN holds h ON (h.kind, h.id) = ('connection', x.connection_id) WHERE x.company_id = a.company_id))`;

/** Protects these from removal. Returns how many were not protected yet. */
export async function hold(
  db: Database,
  what: { kind: HoldKind; ids: string[]; reason: string | null; by: string },
): Promise<number> {
  const result = await sql`
    INSERT INTO holds (kind, id, reason, held_by)
    SELECT ${what.kind}, id, ${what.reason}, ${what.by} FROM unnest(${what.ids}::text[]) AS ids (id)
    ON CONFLICT DO NOTHING`.execute(db);
  return rowsWritten(result);
}

/** Assets that these holds should protect, but that are lost: their removal or erasure began before. At most ten. */
export async function heldTooLate(db: Database, { kind, ids }: { kind: HoldKind; ids: string[] }): Promise<string[]> {
  const held = {
    asset: sql`a.id = ANY(${ids}::text[])`,
    project: sql`a.project_id = ANY(${ids}::text[])`,
    connection: sql`(a.connection_id = ANY(${ids}::text[]) OR a.company_id IN (
      SELECT company_id FROM access WHERE connection_id = ANY(${ids}::text[])))`,
  }[kind];
  const { rows } = await sql<{ id: string }>`
    SELECT a.id FROM assets a WHERE a.state = 'gone' AND a.lease_until > now() AND ${held}
    UNION SELECT a.id FROM assets a JOIN erasure_assets e ON e.asset_id = a.id WHERE ${held}
    ORDER BY id LIMIT 10`.execute(db);
  return rows.map(({ id }) => id);
}

/** Returns how many were protected. */
export async function release(db: Database, what: { kind: HoldKind; ids: string[] }): Promise<number> {
  const result = await sql`DELETE FROM holds WHERE kind = ${what.kind} AND id = ANY(${what.ids}::text[])`.execute(db);
  return rowsWritten(result);
}

export async function holds(db: Database): Promise<Hold[]> {
  const { rows } = await sql<Hold>`
    SELECT kind, id, reason, held_by, held_at FROM holds ORDER BY held_at DESC, kind, id LIMIT 1000`.execute(db);
  return rows;
}

/** Whether one of the holds protects this asset. */
export async function isProtected(db: Database, assetId: string): Promise<boolean> {
  const { rows } = await sql`SELECT FROM assets a WHERE a.id = ${assetId} AND ${protectedByHold}`.execute(db);
  return rows.length > 0;
}
