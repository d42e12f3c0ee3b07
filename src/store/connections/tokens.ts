import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { Superseded } from '../../floor/errors.ts';
import type { Tags } from '../../floor/tags.ts';
import { requestFilters } from '../companies/request-filters.ts';
import { wroteAny } from '../database/results.ts';
import type { Consent, Database, StoredTokens } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent, notify } from '../events/add-event.ts';

/** The tokens of a connection. They are read before every call of the API. */
export async function storedTokens(db: Database, id: string): Promise<StoredTokens | undefined> {
  const { rows } = await sql<StoredTokens>`
    SELECT user_id, status, tokens, token_version, coalesce(access_expires_at > now(), false) AS is_fresh,
      coalesce(extract(epoch FROM delayed_until - now()) * 1000, 0)::float8 AS delay_ms
    FROM connections WHERE id = ${id}`.execute(db);
  return rows[0];
}

/**
 * Connects a user. One who was connected before keeps the connection with its records; a paused one stays paused.
 * `consent`: where the tokens come from; it is deleted, and its time becomes `connectedAt`. `tags` replace those that the connection has.
 * @throws Superseded; Error when another process has finished that consent, or refreshed its tokens
 */
export async function connect(
  db: Database,
  consented: {
    user: { id: string; name: string; email: string };
    tokens: string;
    accessExpiresAt: Date;
    consent?: Pick<Consent, 'id' | 'createdAt' | 'tokens'>;
    tags?: Tags | null;
  },
): Promise<{ id: string; created: boolean; recovered: boolean }> {
  return db.transaction().execute(async (tx) => {
    const { consent, user } = consented;
    // A new user has no row that could be locked: two consents of one may be saved at the same moment.
    await sql`SELECT pg_advisory_xact_lock(hashtextextended(${user.id}, 0))`.execute(tx);
    const before = await tx
      .selectFrom('connections')
      .select(['id', 'status', 'connectedAt', 'linksSince'])
      .where('userId', '=', user.id)
      .forUpdate()
      .executeTakeFirst();
    if (consent) {
      // A refusal by the library sets neither: it is about the grant before.
      if ([before?.connectedAt, before?.linksSince].some((at) => at && at > consent.createdAt)) throw new Superseded();
      const { id, tokens } = consent;
      const finished = await tx
        .deleteFrom('consents')
        .where('id', '=', id)
        .where('tokens', '=', tokens)
        .executeTakeFirst();
      if (finished.numDeletedRows === 0n) throw new Error('another process has finished this consent, or refreshed it');
    }
    const connectedAt = consent?.createdAt ?? sql<Date>`now()`;
    const fresh = {
      userName: user.name,
      userEmail: user.email,
      tokens: consented.tokens,
      accessExpiresAt: consented.accessExpiresAt,
      ...(consented.tags && { tags: consented.tags }),
      connectedAt,
    };
    const saved = await tx
      .insertInto('connections')
      .values({ id: randomUUID(), userId: user.id, status: 'active', ...fresh })
      .onConflict((conflict) =>
        conflict.column('userId').doUpdateSet({
          ...fresh,
          status: sql`CASE WHEN connections.status = 'paused' THEN 'paused' ELSE 'active' END`,
          tokenVersion: sql`connections.token_version + 1`,
          refreshOwner: null,
          refreshUntil: null,
          refreshUnansweredAt: null,
          delayedUntil: null,
          delayedReason: null,
          lastError: null,
          // As for a connection that is resumed (status.ts).
          ...requestFilters,
        }),
      )
      .returning('id')
      .executeTakeFirstOrThrow();
    const recovered = before?.status === 'disconnected';
    await addEvent(tx, {
      kind: before ? (recovered ? 'connection.recovered' : 'connection.reconnected') : 'connection.connected',
      connectionId: saved.id,
    });
    await notify(tx, { connectionId: saved.id });
    return { id: saved.id, created: !before, recovered };
  });
}

/** False if the state of this connect attempt was used before. Used states are kept until they expire. */
export async function useState(db: Database, state: string, until: Date): Promise<boolean> {
  await db.deleteFrom('usedStates').where('until', '<', sql<Date>`now()`).execute();
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('usedStates')
    .values({ state, until })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

/** Leases the refresh of the pair `tokenVersion` for `ms`. Undefined while another owner has it, or if the pair was replaced. */
export async function leaseRefresh(db: Database, id: string, tokenVersion: number, owner: string, ms: number) {
  const result = await sql<{ takenOver: boolean; unanswered: boolean }>`
    UPDATE connections AS c
    SET refresh_owner = ${owner}, refresh_until = ${inMs(ms)}
    FROM (SELECT id, refresh_owner FROM connections WHERE id = ${id} FOR UPDATE) AS before
    WHERE c.id = before.id AND c.token_version = ${tokenVersion} AND c.status <> 'disconnected'
      AND (c.refresh_until IS NULL OR c.refresh_until < now())
    RETURNING before.refresh_owner IS NOT NULL AS taken_over, c.refresh_unanswered_at IS NOT NULL AS unanswered
  `.execute(db);
  return result.rows[0];
}

/** Extends the lease of a refresh, unless another owner has taken it over. */
export async function renewRefresh(db: Database, id: string, owner: string, ms: number): Promise<void> {
  await sql`
    UPDATE connections SET refresh_until = ${inMs(ms)}
    WHERE id = ${id} AND refresh_owner = ${owner} AND refresh_until IS NOT NULL`.execute(db);
}

/** Saves the pair that replaces `tokenVersion`; its access token is used for `accessMs`. False if another pair already has. */
export async function saveRefreshed(
  db: Database,
  id: string,
  tokenVersion: number,
  tokens: string,
  accessMs: number,
): Promise<boolean> {
  const result = await sql`
    UPDATE connections SET tokens = ${tokens}, access_expires_at = ${inMs(accessMs)}, token_version = token_version + 1,
      refresh_owner = NULL, refresh_until = NULL, refresh_unanswered_at = NULL
    WHERE id = ${id} AND token_version = ${tokenVersion} AND status <> 'disconnected'`.execute(db);
  return wroteAny(result);
}

/** Saves the same pair, sealed with another key. False if it was replaced meanwhile. */
export async function reseal(db: Database, id: string, before: string, after: string): Promise<boolean> {
  const result = await sql`UPDATE connections SET tokens = ${after} WHERE id = ${id} AND tokens = ${before}`.execute(
    db,
  );
  return wroteAny(result);
}

/**
 * Releases the lease. `unanswered`: a refresh was sent and its outcome is unknown. `takenOver`: it may be that of an earlier lease
 * holder, who may still save the new pair: the next lease counts as taken over, too.
 */
export async function releaseRefresh(
  db: Database,
  id: string,
  owner: string,
  options: { unanswered: boolean; takenOver: boolean },
): Promise<void> {
  await db
    .updateTable('connections')
    .set({
      ...(!options.takenOver && { refreshOwner: null }),
      refreshUntil: null,
      ...(options.unanswered && { refreshUnansweredAt: sql`coalesce(refresh_unanswered_at, now())` }),
    })
    .where('id', '=', id)
    .where('refreshOwner', '=', owner)
    .execute();
}
