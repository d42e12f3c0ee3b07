import { randomUUID } from 'node:crypto';
import { type Bandwidth, bandwidthIn } from '../../floor/bandwidth-limit.ts';
import type { Database } from '../database/schema.ts';
import { notify } from '../events/add-event.ts';

/** Undefined: it is not set. */
export async function readSetting(db: Database, name: string): Promise<unknown> {
  const row = await db.selectFrom('settings').select('value').where('name', '=', name).executeTakeFirst();
  return row?.value;
}

export async function saveSetting(db: Database, name: string, setting: unknown): Promise<void> {
  const value = JSON.stringify(setting);
  await db
    .insertInto('settings')
    .values({ name, value })
    .onConflict((it) => it.column('name').doUpdateSet({ value }))
    .execute();
}

/** The limit of each process; null: each uses its environment. */
export async function bandwidth(db: Database): Promise<Bandwidth | null> {
  return bandwidthIn(await readSetting(db, 'bandwidth'));
}

/** The id of this database, the same in all processes. */
export const installation = (db: Database): Promise<string> => randomId(db, 'installation');

/** A random id that is made once, and then the same in all processes. */
export async function randomId(db: Database, name: string): Promise<string> {
  const value = JSON.stringify(randomUUID());
  await db
    .insertInto('settings')
    .values({ name, value })
    .onConflict((it) => it.doNothing())
    .execute();
  return String(await readSetting(db, name));
}

export async function setBandwidth(db: Database, limit: Bandwidth | null): Promise<void> {
  await db.transaction().execute(async (tx) => {
    if (limit === null) await tx.deleteFrom('settings').where('name', '=', 'bandwidth').execute();
    else await saveSetting(tx, 'bandwidth', limit);
    await notify(tx, { settings: true });
  });
}
