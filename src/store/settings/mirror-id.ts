import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { randomId, readSetting, saveSetting } from './settings.ts';

const name = 'mirror_id';

/** The mirror id of the bucket that this database belongs to. Undefined: it has none yet. */
export async function known(db: Database): Promise<string | undefined> {
  return (await readSetting(db, name)) as string | undefined;
}

/**
 * The mirror id. `readOrWrite` determines it once, in one process while others wait for the result. It receives the
 * id to write to a bucket that has none. After a crash, it receives the same id again.
 */
export async function id(db: Database, readOrWrite: (proposed: string) => Promise<string>): Promise<string> {
  const before = await known(db);
  if (before !== undefined) return before;
  // Not the id of the installation: two copies of a new database must not accept each other's bucket.
  const proposed = await randomId(db, 'proposed_mirror_id');
  return db.transaction().execute(async (tx) => {
    await sql`SELECT pg_advisory_xact_lock(7413)`.execute(tx);
    const settled = await known(tx);
    if (settled !== undefined) return settled;
    const id = await readOrWrite(proposed);
    await saveSetting(tx, name, id);
    return id;
  });
}
