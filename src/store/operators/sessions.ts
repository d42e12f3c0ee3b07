import { sql } from 'kysely';
import type { Database, Session } from '../database/schema.ts';
import { inMs, msAgo } from '../database/time.ts';

/** A session is live until it ends, or is not used for `idleMs`. */
const isLive = (idleMs: number) => sql<boolean>`ends_at > now() AND last_used_at > ${msAgo(idleMs)}`;
/** Uses are recorded once in this time, so that a page does not write with each request. */
const recordEveryMs = 30_000;

export async function begin(
  db: Database,
  { lifetimeMs, ...session }: Omit<Session, 'createdAt' | 'lastUsedAt' | 'endsAt'> & { lifetimeMs: number },
): Promise<void> {
  await db
    .insertInto('sessions')
    .values({ ...session, endsAt: inMs(lifetimeMs) })
    .execute();
}

/** The live session with this secret, and records the use. */
export async function use(db: Database, hash: string, idleMs: number): Promise<Session | undefined> {
  const found = await db
    .selectFrom('sessions')
    .selectAll()
    .where('hash', '=', hash)
    .where(isLive(idleMs))
    .executeTakeFirst();
  if (!found) return undefined;
  await sql`
    UPDATE sessions SET last_used_at = now()
    WHERE id = ${found.id} AND last_used_at < ${msAgo(Math.min(recordEveryMs, idleMs / 4))}`.execute(db);
  return found;
}

/** Live sessions, most recently used first; of one operator, or of all. */
export async function list(db: Database, idleMs: number, subject?: string): Promise<Session[]> {
  return db
    .selectFrom('sessions')
    .selectAll()
    .where(isLive(idleMs))
    .$if(subject !== undefined, (query) => query.where('subject', '=', subject!))
    .orderBy('lastUsedAt', 'desc')
    .orderBy('id')
    .limit(1000)
    .execute();
}

/** Does not count as use. Undefined: there is none with this id, or it has ended. */
export async function get(db: Database, id: string, idleMs: number): Promise<Session | undefined> {
  return db.selectFrom('sessions').selectAll().where('id', '=', id).where(isLive(idleMs)).executeTakeFirst();
}

/** Ends a session. Undefined: there is none with this id. */
export async function end(db: Database, id: string): Promise<Session | undefined> {
  return db.deleteFrom('sessions').where('id', '=', id).returningAll().executeTakeFirst();
}

export async function pruneSessions(db: Database): Promise<void> {
  await sql`DELETE FROM sessions WHERE ends_at < now()`.execute(db);
}
