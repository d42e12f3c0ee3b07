import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** How an object store proves what it has stored. Forgotten after a day, because stores and settings change. */
export async function recall(db: Database, store: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('storeProofs')
    .select('proof')
    .where('store', '=', store)
    .where('foundAt', '>', sql<Date>`now() - interval '1 day'`)
    .executeTakeFirst();
  return row?.proof;
}

export async function keep(db: Database, store: string, proof: string): Promise<void> {
  await db
    .insertInto('storeProofs')
    .values({ store, proof })
    .onConflict((it) => it.column('store').doUpdateSet({ proof, foundAt: sql<Date>`now()` }))
    .execute();
}
