import { randomUUID } from 'node:crypto';
import { type Bandwidth, bandwidthIn } from '../../floor/bandwidth-limit.ts';
import type { Database } from '../database/schema.ts';
import { notify } from '../events/add-event.ts';

/** The limit of each process; null: each uses its environment. */
export async function bandwidth(db: Database): Promise<Bandwidth | null> {
  const row = await db.selectFrom('settings').select('value').where('name', '=', 'bandwidth').executeTakeFirst();
  return bandwidthIn(row?.value);
}

/** The id of this database, the same in all processes. */
export async function installation(db: Database): Promise<string> {
  const name = 'installation';
  const value = JSON.stringify(randomUUID());
  await db
    .insertInto('settings')
    .values({ name, value })
    .onConflict((it) => it.doNothing())
    .execute();
  const row = await db.selectFrom('settings').select('value').where('name', '=', name).executeTakeFirstOrThrow();
  return String(row.value);
}

export async function setBandwidth(db: Database, limit: Bandwidth | null): Promise<void> {
  await db.transaction().execute(async (tx) => {
    if (limit === null) await tx.deleteFrom('settings').where('name', '=', 'bandwidth').execute();
    else {
      const value = JSON.stringify(limit);
      await tx
        .insertInto('settings')
        .values({ name: 'bandwidth', value })
        .onConflict((it) => it.column('name').doUpdateSet({ value }))
        .execute();
    }
    await notify(tx, { settings: true });
  });
}
