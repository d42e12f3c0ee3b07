import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../database/schema.ts';

/** The mirror id of the bucket that this database belongs to. Undefined: it has none yet. */
export async function known(db: Database): Promise<string | undefined> {
  return (await db.selectFrom('bucket').select('id').executeTakeFirst())?.id;
}

/**
 * The mirror id. `readOrWrite` determines it once, in one process while others wait for the result. It receives the
 * id to write to a bucket that has none. After a crash, it receives the same id again.
 */
export async function id(db: Database, readOrWrite: (proposed: string) => Promise<string>): Promise<string> {
  const before = await known(db);
  if (before !== undefined) return before;
  await db
    .insertInto('bucketProposal')
    .values({ id: randomUUID() })
    .onConflict((it) => it.doNothing())
    .execute();
  const { id: proposed } = await db.selectFrom('bucketProposal').select('id').executeTakeFirstOrThrow();
  return db.transaction().execute(async (tx) => {
    await sql`SELECT pg_advisory_xact_lock(7413)`.execute(tx);
    const settled = await known(tx);
    if (settled !== undefined) return settled;
    const id = await readOrWrite(proposed);
    await tx.insertInto('bucket').values({ id }).execute();
    return id;
  });
}
