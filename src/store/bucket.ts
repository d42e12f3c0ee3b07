import { sql } from 'kysely';
import type { Database } from './schema.ts';

/** Which bucket the records are about: one, told by an id that it carries itself. */
export function bucketRecord(db: Database) {
  return {
    /**
     * The id. Where there is none yet it becomes what `find` returns, which one process at a time does: whoever comes
     * while it is being settled waits, and gets the same. An id once known is never replaced.
     */
    async id(find: () => Promise<string>): Promise<string> {
      const known = await db.selectFrom('bucket').select('id').executeTakeFirst();
      if (known) return known.id;
      return db.transaction().execute(async (tx) => {
        await sql`SELECT pg_advisory_xact_lock(7413)`.execute(tx);
        const settled = await tx.selectFrom('bucket').select('id').executeTakeFirst();
        if (settled) return settled.id;
        const id = await find();
        await tx.insertInto('bucket').values({ id }).execute();
        return id;
      });
    },
  };
}
