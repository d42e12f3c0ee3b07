import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** The mirror id of the bucket that this database belongs to. Undefined: it has none yet. */
export async function known(db: Database): Promise<string | undefined> {
  return (await db.selectFrom('bucket').select('id').executeTakeFirst())?.id;
}

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

/**
 * The mirror id. `find` determines it once, in one process while others wait for the result. `find` gets the id for a bucket
 * without one. It gets the same id again if a process died after it had written that id.
 */
export async function id(db: Database, find: (proposed: string) => Promise<string>): Promise<string> {
  const known = await db.selectFrom('bucket').select('id').executeTakeFirst();
  if (known) return known.id;
  await db
    .insertInto('bucketProposal')
    .values({ id: randomUUID() })
    .onConflict((it) => it.doNothing())
    .execute();
  const { id: proposed } = await db.selectFrom('bucketProposal').select('id').executeTakeFirstOrThrow();
  return db.transaction().execute(async (tx) => {
    await sql`SELECT pg_advisory_xact_lock(7413)`.execute(tx);
    const settled = await tx.selectFrom('bucket').select('id').executeTakeFirst();
    if (settled) return settled.id;
    const id = await find(proposed);
    await tx.insertInto('bucket').values({ id }).execute();
    return id;
  });
}
