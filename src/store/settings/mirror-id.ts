import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** Which bucket the records are about: one, told by an id that it carries itself. */

/** What the records know it by; undefined when they know none yet. */
export async function known(db: Database): Promise<string | undefined> {
  return (await db.selectFrom('bucket').select('id').executeTakeFirst())?.id;
}

/** How a store can be held to what it was sent, as it was found out within a day: stores and their settings change. */
export async function recall(db: Database, place: string): Promise<string | undefined> {
  const row = await db
    .selectFrom('storeProofs')
    .select('proof')
    .where('place', '=', place)
    .where('foundAt', '>', sql<Date>`now() - interval '1 day'`)
    .executeTakeFirst();
  return row?.proof;
}

export async function keep(db: Database, place: string, proof: string): Promise<void> {
  await db
    .insertInto('storeProofs')
    .values({ place, proof })
    .onConflict((it) => it.column('place').doUpdateSet({ proof, foundAt: sql<Date>`now()` }))
    .execute();
}

/**
 * The id. Where there is none yet it becomes what `find` returns, which one process at a time does: whoever comes
 * while it is being settled waits, and gets the same. An id once known is never replaced. `find` is told the one for a
 * bucket that has none, always the same: so one that was given it, by a process that died right then, is known by it.
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
