import { sql } from 'kysely';
import type { Reason } from '../../floor/reason-codes.ts';
import { reasonFields } from '../../floor/reasons.ts';
import { inIndexOrder, isQueued } from '../assets/leases.ts';
import { leaveWork } from '../companies/adopt-assets.ts';
import { requestFilters } from '../companies/request-filters.ts';
import { jsonb } from '../database/jsonb.ts';
import { wroteAny } from '../database/results.ts';
import type { Connection, Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent, notify } from '../events/add-event.ts';
import { request } from '../syncs/syncs.ts';

/**
 * Disconnects a connection. Only one caller gets its tokens, and informs operators. Without `refused`, an operator does it:
 * earlier connect links stop working, and a connection that has ended already gets this reason. With `refused`, the library has
 * refused that token pair: it must still be the current one, and its refresh leased to `owner`, because a process that took over the
 * lease may have received the next pair.
 */
export async function end(
  db: Database,
  id: string,
  reason: Reason,
  refused?: { tokenVersion: number; owner: string },
): Promise<Pick<Connection, 'userId' | 'tokens'> | undefined> {
  return db.transaction().execute(async (tx) => {
    const before = await tx
      .selectFrom('connections')
      .select(['userId', 'tokens'])
      .where('id', '=', id)
      .forUpdate()
      .executeTakeFirst();
    if (!refused) {
      const lastError = sql<Reason | null>`CASE status WHEN 'disconnected' THEN ${jsonb(reason)} ELSE last_error END`;
      await tx.updateTable('connections').set({ linksSince: sql`now()`, lastError }).where('id', '=', id).execute();
    }
    const ended = await tx
      .updateTable('connections')
      .set({
        status: 'disconnected',
        tokens: null,
        accessExpiresAt: null,
        refreshOwner: null,
        refreshUntil: null,
        syncOwner: null,
        syncUntil: null,
        delayedUntil: null,
        delayedReason: null,
        lastError: jsonb(reason),
      })
      .where('id', '=', id)
      .where('status', '<>', 'disconnected')
      .$if(refused !== undefined, (query) =>
        query.where('tokenVersion', '=', refused!.tokenVersion).where('refreshOwner', '=', refused!.owner),
      )
      .returning('id')
      .executeTakeFirst();
    if (!ended) return undefined;
    await leaveWork(tx, id);
    await tx
      .updateTable('syncs')
      .set({ status: 'failed', error: jsonb(reason), finishedAt: sql`now()` })
      .where('connectionId', '=', id)
      .where('status', 'in', ['waiting', 'running'])
      .execute();
    await sql`
      DELETE FROM sightings USING syncs WHERE syncs.id = sync_id AND syncs.connection_id = ${id}`.execute(tx);
    await addEvent(tx, { kind: 'connection.disconnected', connectionId: id, data: reasonFields(reason) });
    await notify(tx, { connectionId: id });
    return before;
  });
}

/**
 * Pauses an active connection: its sync and transfers stop in all processes. Assets that another connection can read
 * continue there. False: it was not active.
 */
export async function pause(db: Database, id: string): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const paused = await tx
      .updateTable('connections')
      .set({ status: 'paused', syncOwner: null, syncUntil: null })
      .where('id', '=', id)
      .where('status', '=', 'active')
      .returning('id')
      .executeTakeFirst();
    if (!paused) return false;
    await leaveWork(tx, id);
    await addEvent(tx, { kind: 'connection.paused', connectionId: id });
    await notify(tx, { connectionId: id });
    return true;
  });
}

/**
 * Resumes a paused connection, with a sync for what is new. The filters of connections that continued with its assets may have
 * skipped some of them, so its own are applied again. False: it was not paused.
 */
export async function resume(db: Database, id: string): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const resumed = await tx
      .updateTable('connections')
      .set({ status: 'active', ...requestFilters })
      .where('id', '=', id)
      .where('status', '=', 'paused')
      .returning('id')
      .executeTakeFirst();
    if (!resumed) return false;
    await request(tx, id, 'incremental');
    await addEvent(tx, { kind: 'connection.resumed', connectionId: id });
    await notify(tx, { connectionId: id });
    return true;
  });
}

/** Stops all requests of a connection for `waitMs`; the reason becomes its last error until a sync ends. False: it already waits as long. */
export async function delay(db: Database, id: string, waitMs: number, reason: Reason): Promise<boolean> {
  const result = await sql`
    UPDATE connections SET delayed_until = ${inMs(waitMs)}, delayed_reason = ${jsonb(reason)}, last_error = ${jsonb(reason)}
    WHERE id = ${id} AND status <> 'disconnected'
      AND (delayed_until IS NULL OR delayed_until < ${inMs(waitMs)})`.execute(db);
  return wroteAny(result);
}

/** What decides about the concurrency of a connection. `queued`: assets on the queue, waiting and running; `now` in epoch milliseconds. */
export async function concurrency(
  db: Database,
  id: string,
): Promise<(Pick<Connection, 'adaptiveLimit' | 'settings'> & { queued: number; now: number }) | undefined> {
  const rows = await db.transaction().execute(async (tx) => {
    await sql`SELECT ${inIndexOrder}`.execute(tx);
    const found = await sql<Pick<Connection, 'adaptiveLimit' | 'settings'> & { queued: number; now: Date }>`
      SELECT adaptive_limit, settings, now(), (SELECT count(*)::int FROM (
        SELECT FROM assets WHERE ${isQueued} AND connection_id = ${id} ORDER BY queued_at) AS job) AS queued
      FROM connections WHERE id = ${id}`.execute(tx);
    return found.rows;
  });
  return rows[0] && { ...rows[0], now: rows[0].now.getTime() };
}

/** Replaces the adaptive limit. False if another process has changed it from `before`. */
export async function setAdaptiveLimit(
  db: Database,
  id: string,
  before: Connection['adaptiveLimit'],
  after: Connection['adaptiveLimit'],
): Promise<boolean> {
  const result = await sql`
    UPDATE connections SET adaptive_limit = ${jsonb(after)}
    WHERE id = ${id} AND adaptive_limit = ${jsonb(before)}`.execute(db);
  return wroteAny(result);
}
