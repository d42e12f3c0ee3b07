import { sql } from 'kysely';
import type { Connection, Database } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent, notify } from '../events/add-event.ts';
import { request } from '../syncs/syncs.ts';
import { adoptWork, leaveWork } from './hand-over.ts';

/**
 * The connection has ended. Exactly one caller gets true, and tells people.
 * With `refused`, a pair that the service no longer takes: only if that pair is still the current one, and its refresh is
 * still leased to `owner`. Another process that has taken the lease over may have the next pair in its hands. Without, an
 * operator ends it, and the connect links that were made before, also if it had ended already.
 */
export async function end(
  db: Database,
  id: string,
  reason: string,
  refused?: { tokenVersion: number; owner: string },
): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    if (!refused) {
      await tx.updateTable('connections').set({ linksSince: sql`now()` }).where('id', '=', id).execute();
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
        disconnectedAt: sql`now()`,
        disconnectReason: reason,
        lastError: reason,
      })
      .where('id', '=', id)
      .where('status', '<>', 'disconnected')
      .$if(refused !== undefined, (query) =>
        query.where('tokenVersion', '=', refused!.tokenVersion).where('refreshOwner', '=', refused!.owner),
      )
      .returning('id')
      .executeTakeFirst();
    if (!ended) return false;
    await leaveWork(tx, id);
    await tx
      .updateTable('syncs')
      .set({ status: 'failed', error: reason, finishedAt: sql`now()` })
      .where('connectionId', '=', id)
      .where('status', 'in', ['waiting', 'running'])
      .execute();
    await sql`
      DELETE FROM sightings USING syncs WHERE syncs.id = sync_id AND syncs.connection_id = ${id}`.execute(tx);
    await addEvent(tx, { kind: 'connection.disconnected', connectionId: id, data: { reason } });
    await notify(tx, { connectionId: id });
    return true;
  });
}

/**
 * Nothing more is done for an active connection: its sync and its transfers stop in all processes, and assets that
 * another connection can read go on there. False: it was not active.
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

/** A paused connection goes on, with a run for what has come in meanwhile. False: it was not paused. */
export async function resume(db: Database, id: string): Promise<boolean> {
  return db.transaction().execute(async (tx) => {
    const resumed = await tx
      .updateTable('connections')
      .set({ status: 'active' })
      .where('id', '=', id)
      .where('status', '=', 'paused')
      .returning('id')
      .executeTakeFirst();
    if (!resumed) return false;
    await adoptWork(tx, id);
    await request(tx, id, 'incremental');
    await addEvent(tx, { kind: 'connection.resumed', connectionId: id });
    await notify(tx, { connectionId: id });
    return true;
  });
}

/** Nobody asks the service anything for this connection for `waitMs`. False: it waits as long already. */
export async function park(db: Database, id: string, waitMs: number, reason: string): Promise<boolean> {
  const { numAffectedRows } = await sql`
    UPDATE connections SET parked_until = ${inMs(waitMs)}, last_error = ${reason}
    WHERE id = ${id} AND status <> 'disconnected'
      AND (parked_until IS NULL OR parked_until < ${inMs(waitMs)})`.execute(db);
  return (numAffectedRows ?? 0n) > 0n;
}

/** Takes the place of the adaptiveLimit that was read before; false when another did first. */
export async function setAdaptiveLimit(
  db: Database,
  id: string,
  before: Connection['adaptiveLimit'],
  after: Connection['adaptiveLimit'],
): Promise<boolean> {
  const { numAffectedRows } = await sql`
    UPDATE connections SET adaptive_limit = ${JSON.stringify(after)}::jsonb
    WHERE id = ${id} AND adaptive_limit IS NOT DISTINCT FROM ${before && JSON.stringify(before)}::jsonb`.execute(db);
  return (numAffectedRows ?? 0n) > 0n;
}
