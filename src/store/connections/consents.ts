import { sql } from 'kysely';
import { wroteAny } from '../database/results.ts';
import type { Consent, Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';

/**
 * Saves the tokens of a user who is not known yet. The caller has `leaseMs` to finish the consent. `accessMs`: how long its
 * access token works.
 */
export async function save(
  db: Database,
  consent: Pick<Consent, 'id' | 'tokens' | 'connectionId' | 'tags' | 'linkMadeAt'>,
  { accessMs, leaseMs }: { accessMs: number; leaseMs: number },
): Promise<Consent> {
  return db
    .insertInto('consents')
    .values({ ...consent, accessExpiresAt: inMs(accessMs), nextAt: inMs(leaseMs) })
    .returningAll()
    .executeTakeFirstOrThrow();
}

/** Takes a consent that is due; the caller has `leaseMs` to finish it. `isFresh`: its access token still works. */
export async function take(db: Database, leaseMs: number) {
  const { rows } = await sql<Consent & { isFresh: boolean }>`
    UPDATE consents SET next_at = ${inMs(leaseMs)}
    WHERE id = (SELECT id FROM consents WHERE next_at <= now() ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING *, access_expires_at > now() AS is_fresh`.execute(db);
  return rows[0];
}

export async function list(db: Database): Promise<Consent[]> {
  return db.selectFrom('consents').selectAll().orderBy('createdAt').execute();
}

export async function get(db: Database, id: string): Promise<Consent | undefined> {
  return db.selectFrom('consents').selectAll().where('id', '=', id).executeTakeFirst();
}

/** Replaces the encrypted tokens. False if they are no longer `before`. */
export async function reseal(db: Database, id: string, before: string, after: string): Promise<boolean> {
  const result = await sql`UPDATE consents SET tokens = ${after} WHERE id = ${id} AND tokens = ${before}`.execute(db);
  return wroteAny(result);
}

/** Makes a consent due again after `waitMs`. */
export async function again(db: Database, id: string, waitMs: number): Promise<void> {
  await sql`UPDATE consents SET next_at = ${inMs(waitMs)} WHERE id = ${id}`.execute(db);
}

/** The library refuses the access token: the consent is due now, to be refreshed. */
export async function expire(db: Database, { id, tokens }: Pick<Consent, 'id' | 'tokens'>): Promise<void> {
  await sql`
    UPDATE consents SET next_at = now(), access_expires_at = now() WHERE id = ${id} AND tokens = ${tokens}`.execute(db);
}

/** Saves refreshed tokens; otherwise as `save`. Undefined if the consent has ended. */
export async function renew(
  db: Database,
  id: string,
  tokens: string,
  { accessMs, leaseMs }: { accessMs: number; leaseMs: number },
): Promise<Consent | undefined> {
  return db
    .updateTable('consents')
    .set({ tokens, accessExpiresAt: inMs(accessMs), nextAt: inMs(leaseMs) })
    .where('id', '=', id)
    .returningAll()
    .executeTakeFirst();
}

export async function remove(db: Database, id: string): Promise<void> {
  await db.deleteFrom('consents').where('id', '=', id).execute();
}
