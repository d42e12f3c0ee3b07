import { sql } from 'kysely';
import type { Consent, Database } from '../database/schema.ts';

/** Grants of users who have consented, and of whom it is not known yet who they are. */
export function consentRecords(db: Database) {
  return {
    /** For `holdMs` it is the caller's to finish. */
    async save(
      consent: Pick<Consent, 'id' | 'tokens' | 'connectionId' | 'linkMadeAt' | 'accessExpiresAt'>,
      holdMs: number,
    ): Promise<Consent> {
      return db
        .insertInto('consents')
        .values({ ...consent, nextAt: sql`now() + ${holdMs} * interval '1 ms'` })
        .returningAll()
        .executeTakeFirstOrThrow();
    },

    /** One that is due, for `holdMs` the caller's to finish. */
    async take(holdMs: number): Promise<Consent | undefined> {
      const { rows } = await sql<Consent>`
        UPDATE consents SET next_at = now() + ${holdMs} * interval '1 ms'
        WHERE id = (SELECT id FROM consents WHERE next_at <= now() ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING *`.execute(db);
      return rows[0];
    },

    async again(id: string, waitMs: number): Promise<void> {
      await sql`UPDATE consents SET next_at = now() + ${waitMs} * interval '1 ms' WHERE id = ${id}`.execute(db);
    },

    async renew({ id, tokens, accessExpiresAt }: Consent): Promise<void> {
      await db.updateTable('consents').set({ tokens, accessExpiresAt }).where('id', '=', id).execute();
    },

    async remove(id: string): Promise<void> {
      await db.deleteFrom('consents').where('id', '=', id).execute();
    },
  };
}
