import { sql } from 'kysely';
import type { HeldChanges, HeldKind } from '../../floor/held-changes.ts';
import { jsonb } from '../database/jsonb.ts';
import type { Database } from '../database/schema.ts';
import { addEvent } from '../events/add-event.ts';

/**
 * Saves which changes of a company wait until an operator accepts them (undefined: none). True if there were none before; an
 * event then reports them. Replacements and removals are shared by all connections that can read the company.
 */
export async function setHeld(
  tx: Database,
  { connectionId, companyId }: { connectionId: string; companyId: string },
  kind: HeldKind,
  held: HeldChanges | undefined,
): Promise<boolean> {
  const isShared = kind !== 'missing';
  if (!held) {
    await sql`
      UPDATE access SET held = held - ${kind}::text
      WHERE company_id = ${companyId} AND (connection_id = ${connectionId} OR ${isShared}) AND held ? ${kind}`.execute(
      tx,
    );
    return false;
  }
  const { rows } = await sql<{ isNew: boolean; companyName: string }>`
    WITH before AS (
      SELECT NOT EXISTS (
        SELECT FROM access WHERE company_id = ${companyId} AND (connection_id = ${connectionId} OR ${isShared})
          AND held ? ${kind}) AS is_new
    )
    UPDATE access SET held = held || jsonb_build_object(${kind}::text,
      jsonb_build_object('since', coalesce(held->${kind}->>'since', ${new Date().toISOString()})) || ${jsonb(held)})
    FROM before WHERE connection_id = ${connectionId} AND company_id = ${companyId}
    RETURNING is_new, (SELECT name FROM companies WHERE id = ${companyId}) AS company_name`.execute(tx);
  if (!rows[0]?.isNew) return false;
  const { companyName } = rows[0];
  await addEvent(tx, { kind: 'company.held', connectionId, data: { companyId, companyName, kind, ...held } });
  return true;
}

/** Ends held changes of companies that this connection no longer lists. Only held removals stay: they wait for an operator. */
export async function endHeldChanges(db: Database, connectionId: string, companyIds: string[]): Promise<void> {
  await sql`
    UPDATE access SET held = held - '{missing,replaced}'::text[]
    WHERE connection_id = ${connectionId} AND company_id = ANY(${companyIds}::text[])
      AND held ?| '{missing,replaced}'`.execute(db);
}

/** Whether a company has replacements that were set aside, or are held. */
export const hasReplacements = (connectionId: string, companyId: string) => sql<boolean>`(
  EXISTS (SELECT FROM replacements WHERE company_id = ${companyId} AND released_at IS NULL)
  OR EXISTS (SELECT FROM access WHERE connection_id = ${connectionId} AND company_id = ${companyId} AND held ? 'replaced'))`;

/** How many companies are held, by kind. A company that several connections can read counts once. */
export async function countHeld(db: Database): Promise<Record<HeldKind, number>> {
  const { rows } = await sql<{ kind: string; count: number }>`
    SELECT kind, count(DISTINCT company_id) AS count
    FROM access CROSS JOIN LATERAL jsonb_object_keys(held) AS kind
    WHERE held <> '{}' AND (kind = 'removed' OR ${isInEffect}) GROUP BY kind`.execute(db);
  return { missing: 0, replaced: 0, removed: 0, ...Object.fromEntries(rows.map(({ kind, count }) => [kind, count])) };
}

/** For a row of `access`: its connection still works on the company. */
const isInEffect = sql`lost_at IS NULL
  AND EXISTS (SELECT FROM connections c WHERE c.id = access.connection_id AND c.status <> 'disconnected')`;
