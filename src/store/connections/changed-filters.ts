import { isDeepStrictEqual } from 'node:util';
import { sql } from 'kysely';
import { fullSyncDue } from '../companies/full-sync-due.ts';
import type { Database } from '../database/schema.ts';
import { readSetting, saveSetting } from '../settings/settings.ts';

/** The filters of the environment. */
interface Defaults {
  includeTypes: string[];
  excludeTypes: string[];
}

const name = 'filters';

/** Those of the process that started last; undefined: none was saved. */
export async function savedDefaults(db: Database): Promise<Defaults | undefined> {
  return (await readSetting(db, name)) as Defaults | undefined;
}

/** Saves the filters of the environment. If they have changed, a full sync of each connection is due, and it returns true. */
export async function changeDefaults(db: Database, { includeTypes, excludeTypes }: Defaults): Promise<boolean> {
  const value = { includeTypes: includeTypes.toSorted(), excludeTypes: excludeTypes.toSorted() };
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
    await tx.updateTable('connections').set(fullSyncDue).execute();
    return true;
  });
}

/** Connections that can read a company now, with their settings; the oldest first. */
export async function readers(db: Database, companyId: string) {
  const { rows } = await sql<{ id: string; settings: Record<string, unknown> }>`
    SELECT c.id, c.settings FROM connections c JOIN access a ON a.connection_id = c.id
    WHERE a.company_id = ${companyId} AND a.lost_at IS NULL AND c.status = 'active'
    ORDER BY c.connected_at, c.id`.execute(db);
  return rows;
}
