import type { Database } from '../database/schema.ts';

export async function end(db: Database, id: string, until: Date): Promise<void> {
  await db
    .insertInto('endedSessions')
    .values({ id, until })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

export async function ended(db: Database, id: string): Promise<boolean> {
  return (await db.selectFrom('endedSessions').select('id').where('id', '=', id).executeTakeFirst()) !== undefined;
}
