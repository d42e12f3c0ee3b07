import { isDeepStrictEqual } from 'node:util';
import { sql } from 'kysely';
import { requestFilters } from '../companies/request-filters.ts';
import { jsonb } from '../database/jsonb.ts';
import type { Database } from '../database/schema.ts';
import { saveSetting } from '../settings/settings.ts';

/** The filters of the environment. */
interface Defaults {
  includeTypes: string[];
  excludeTypes: string[];
}

const name = 'filters';
const sorted = (defaults: Defaults) => ({
  include: [...defaults.includeTypes].sort(),
  exclude: [...defaults.excludeTypes].sort(),
});

/** False in an old process during a rolling restart: a newer one has other defaults. */
const areSaved = (defaults: Defaults) => sql`
  EXISTS (SELECT FROM settings WHERE name = ${name} AND value = ${jsonb(sorted(defaults))})`;

/** Saves the filters of the environment. If they have changed, the filters of all connections are applied again, and it returns true. */
export async function changeDefaults(db: Database, defaults: Defaults): Promise<boolean> {
  const value = sorted(defaults);
  return db.transaction().execute(async (tx) => {
    const before = await tx
      .selectFrom('settings')
      .select('value')
      .where('name', '=', name)
      .forUpdate()
      .executeTakeFirst();
    if (isDeepStrictEqual(before?.value, value)) return false;
    await saveSetting(tx, name, value);
    if (!before) return false;
    await tx.updateTable('connections').set(requestFilters).execute();
    return true;
  });
}

/** Connections whose changed filters are still to be applied to their assets. None if a newer process has other defaults. */
export async function pending(db: Database, defaults: Defaults): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM connections
    WHERE filters_applied < filters_requested AND status <> 'disconnected' AND ${areSaved(defaults)} ORDER BY id`.execute(
    db,
  );
  return rows.map((row) => row.id);
}

/**
 * Records that the filters were applied for the request `requested`, which was read with the settings. They are applied again if
 * there was another request meanwhile, or if other defaults are saved now. A run for an earlier request may end last, and may have
 * overwritten decisions: then `filters_applied` becomes lower again, so that they are applied again, too.
 */
export async function applied(
  db: Database,
  connectionId: string,
  requested: number,
  defaults: Defaults,
): Promise<void> {
  await sql`
    UPDATE connections SET filters_applied = ${requested},
      filters_requested = filters_requested + CASE WHEN ${areSaved(defaults)} THEN 0 ELSE 1 END
    WHERE id = ${connectionId}`.execute(db);
}

/** Connections that can read a company now, with their settings; the oldest first. */
export async function readers(db: Database, companyId: string) {
  const { rows } = await sql<{ id: string; settings: Record<string, unknown> }>`
    SELECT c.id, c.settings FROM connections c JOIN access a ON a.connection_id = c.id
    WHERE a.company_id = ${companyId} AND a.lost_at IS NULL AND c.status = 'active'
    ORDER BY c.connected_at, c.id`.execute(db);
  return rows;
}
