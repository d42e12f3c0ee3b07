import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** Sessions that were ended before their time. Those that run out by themselves are in no record. */
export function sessions(db: Database) {
  return {
    async end(id: string, until: Date): Promise<void> {
      await db
        .insertInto('endedSessions')
        .values({ id, until })
        .onConflict((conflict) => conflict.doNothing())
        .execute();
    },

    async ended(id: string): Promise<boolean> {
      return (await db.selectFrom('endedSessions').select('id').where('id', '=', id).executeTakeFirst()) !== undefined;
    },
  };
}

export async function pruneSessions(db: Database): Promise<void> {
  await db.deleteFrom('endedSessions').where('until', '<', sql<Date>`now()`).execute();
}
