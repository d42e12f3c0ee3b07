import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Connection, ConnectionStatus, Database, Grant } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent, notify } from '../events/events.ts';
import { LeaseLost } from '../syncs/lease.ts';
import { syncRecords } from '../syncs/syncs.ts';
import { adoptable, adoptableBy, type ReadableCompany, type Standing, standing } from './readable-companies.ts';

/** Connections, the companies each can read with their marks, and the leases for refreshing and syncing. */
export function connectionRecords(db: Database) {
  return {
    async get(id: string): Promise<Connection | undefined> {
      return db.selectFrom('connections').selectAll().where('id', '=', id).executeTakeFirst();
    },

    /** Of a connection what its access token is made of. It is asked for with every call of the API. */
    async grant(id: string): Promise<Grant | undefined> {
      const { rows } = await sql<Grant>`
        SELECT user_id, status, tokens, token_version, coalesce(access_expires_at > now(), false) AS is_fresh,
          coalesce(extract(epoch FROM parked_until - now()) * 1000, 0)::float8 AS parked_ms
        FROM connections WHERE id = ${id}`.execute(db);
      return rows[0];
    },

    async ofUser(userId: string): Promise<Connection | undefined> {
      return db.selectFrom('connections').selectAll().where('userId', '=', userId).executeTakeFirst();
    },

    async list(): Promise<Connection[]> {
      return db.selectFrom('connections').selectAll().orderBy('connectedAt').orderBy('id').execute();
    },

    async countByStatus(): Promise<Partial<Record<ConnectionStatus, number>>> {
      const rows = await db
        .selectFrom('connections')
        .select(['status', (e) => e.fn.countAll<number>().as('count')])
        .groupBy('status')
        .execute();
      return Object.fromEntries(rows.map(({ status, count }) => [status, count]));
    },

    /** For each active connection the seconds since it was last synced to the end, or was made. */
    async lags(): Promise<{ id: string; seconds: number }[]> {
      const { rows } = await sql<{ id: string; seconds: number }>`
        SELECT id, extract(epoch FROM now() - coalesce(last_sync_at, connected_at))::float8 AS seconds
        FROM connections WHERE status = 'active'`.execute(db);
      return rows;
    },

    /** A page of them in the order in which they connected, each with that time in microseconds since the epoch. */
    async search(filter: {
      status?: ConnectionStatus | undefined;
      q?: string | undefined;
      after?: { connected: number; id: string } | undefined;
      limit: number;
    }): Promise<(Connection & { connectedMicros: number })[]> {
      const { after, q } = filter;
      const like = q && `%${q.replace(/[\\%_]/g, '\\$&')}%`;
      return db
        .selectFrom('connections')
        .selectAll()
        .select(sql<number>`(extract(epoch FROM connected_at) * 1000000)::bigint`.as('connectedMicros'))
        .$if(filter.status !== undefined, (query) => query.where('status', '=', filter.status!))
        .$if(q !== undefined, (query) =>
          query.where(
            sql<boolean>`(id = ${q} OR user_name ILIKE ${like} OR user_email ILIKE ${like} OR id IN (
              SELECT a.connection_id FROM access a JOIN companies c ON c.id = a.company_id
              WHERE a.lost_at IS NULL AND (c.id = ${q} OR c.name ILIKE ${like})))`,
          ),
        )
        .$if(after !== undefined, (query) =>
          query.where(
            sql<boolean>`(connected_at, id) > ('epoch'::timestamptz + ${after!.connected} * interval '1 microsecond', ${after!.id})`,
          ),
        )
        .orderBy('connectedAt')
        .orderBy('id')
        .limit(filter.limit)
        .execute();
    },

    /** Active connections, with what their schedule depends on. */
    async scheduled(): Promise<{ id: string; status: ConnectionStatus; settings: Record<string, unknown> }[]> {
      return db.selectFrom('connections').select(['id', 'status', 'settings']).where('status', '=', 'active').execute();
    },

    /** Bytes per second and process, of those that have a limit of their own. */
    async bandwidths(): Promise<Map<string, number>> {
      const { rows } = await sql<{ id: string; bandwidth: unknown }>`
        SELECT id, settings->'bandwidth' AS bandwidth FROM connections WHERE settings ? 'bandwidth'`.execute(db);
      return new Map(
        rows.flatMap(({ id, bandwidth }) => (typeof bandwidth === 'number' ? [[id, bandwidth] as const] : [])),
      );
    },

    /**
     * Saves a new grant. A user who was connected before keeps the connection with its marks and records; one who was
     * disconnected is active again, one who was paused stays so. `consentId`: the consent that it comes from, which is finished
     * with it, once.
     */
    async saveGrant(grant: {
      user: { id: string; name: string; email: string };
      tokens: string;
      accessExpiresAt: Date;
      consentId?: string;
    }): Promise<{ id: string; created: boolean; recovered: boolean }> {
      return db.transaction().execute(async (tx) => {
        if (grant.consentId !== undefined) {
          const finished = await tx.deleteFrom('consents').where('id', '=', grant.consentId).executeTakeFirst();
          // Its tokens may be refreshed by now: these would be the old ones.
          if (finished.numDeletedRows === 0n) throw new Error('another process has finished this consent');
        }
        const before = await tx
          .selectFrom('connections')
          .select(['id', 'status'])
          .where('userId', '=', grant.user.id)
          .forUpdate()
          .executeTakeFirst();
        const fresh = {
          userName: grant.user.name,
          userEmail: grant.user.email,
          tokens: grant.tokens,
          accessExpiresAt: grant.accessExpiresAt,
        };
        const saved = await tx
          .insertInto('connections')
          .values({ id: randomUUID(), userId: grant.user.id, status: 'active', ...fresh })
          .onConflict((conflict) =>
            conflict.column('userId').doUpdateSet({
              ...fresh,
              status: sql`CASE WHEN connections.status = 'paused' THEN 'paused' ELSE 'active' END`,
              tokenVersion: sql`connections.token_version + 1`,
              connectedAt: sql`now()`,
              refreshOwner: null,
              refreshUntil: null,
              refreshUnansweredAt: null,
              parkedUntil: null,
              lastError: null,
              disconnectedAt: null,
              disconnectReason: null,
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
    },

    /**
     * The connection has ended. Exactly one caller gets true, and tells people.
     * With `refused`, a pair that the service no longer takes: only if that pair is still the current one, and its refresh is
     * still leased to `owner`. Another process that has taken the lease over may have the next pair in its hands. Without, an
     * operator ends it, and the connect links that were made before, also if it had ended already.
     */
    async end(id: string, reason: string, refused?: { tokenVersion: number; owner: string }): Promise<boolean> {
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
    },

    /**
     * Nothing more is done for an active connection: its sync and its transfers stop in all processes, and assets that
     * another connection can read go on there. False: it was not active.
     */
    async pause(id: string): Promise<boolean> {
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
    },

    /** A paused connection goes on, with a run for what has come in meanwhile. False: it was not paused. */
    async resume(id: string): Promise<boolean> {
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
        await syncRecords(tx).request(id, 'incremental');
        await addEvent(tx, { kind: 'connection.resumed', connectionId: id });
        await notify(tx, { connectionId: id });
        return true;
      });
    },

    /** Nobody asks the service anything for this connection for `waitMs`. False: it waits as long already. */
    async park(id: string, waitMs: number, reason: string): Promise<boolean> {
      const { numAffectedRows } = await sql`
        UPDATE connections SET parked_until = ${inMs(waitMs)}, last_error = ${reason}
        WHERE id = ${id} AND status <> 'disconnected'
          AND (parked_until IS NULL OR parked_until < ${inMs(waitMs)})`.execute(db);
      return (numAffectedRows ?? 0n) > 0n;
    },

    /** Takes the place of the adaptiveLimit that was read before; false when another did first. */
    async setAdaptiveLimit(
      id: string,
      before: Connection['adaptiveLimit'],
      after: Connection['adaptiveLimit'],
    ): Promise<boolean> {
      const { numAffectedRows } = await sql`
        UPDATE connections SET adaptive_limit = ${JSON.stringify(after)}::jsonb
        WHERE id = ${id} AND adaptive_limit IS NOT DISTINCT FROM ${before && JSON.stringify(before)}::jsonb`.execute(
        db,
      );
      return (numAffectedRows ?? 0n) > 0n;
    },

    /** The lease to refresh the pair `tokenVersion`, for `ms`; undefined while another holds it or the pair was replaced. */
    async leaseRefresh(id: string, tokenVersion: number, owner: string, ms: number) {
      const result = await sql<{ tokens: string; takenOver: boolean; unanswered: boolean }>`
        UPDATE connections AS c
        SET refresh_owner = ${owner}, refresh_until = now() + ${ms} * interval '1 ms'
        FROM (SELECT id, refresh_owner FROM connections WHERE id = ${id} FOR UPDATE) AS before
        WHERE c.id = before.id AND c.token_version = ${tokenVersion} AND c.status <> 'disconnected'
          AND (c.refresh_until IS NULL OR c.refresh_until < now())
        RETURNING c.tokens, before.refresh_owner IS NOT NULL AS taken_over, c.refresh_unanswered_at IS NOT NULL AS unanswered
      `.execute(db);
      return result.rows[0];
    },

    /** The refresh goes on; nothing happens when another has taken the lease over. */
    async renewRefresh(id: string, owner: string, ms: number): Promise<void> {
      await sql`
        UPDATE connections SET refresh_until = now() + ${ms} * interval '1 ms'
        WHERE id = ${id} AND refresh_owner = ${owner}`.execute(db);
    },

    /**
     * Saves the pair that replaces `tokenVersion`; its access token is used for `accessMs`. False when another pair has
     * replaced it meanwhile.
     */
    async saveRefreshed(id: string, tokenVersion: number, tokens: string, accessMs: number): Promise<boolean> {
      const { numUpdatedRows } = await db
        .updateTable('connections')
        .set({
          tokens,
          accessExpiresAt: inMs(accessMs),
          tokenVersion: tokenVersion + 1,
          refreshOwner: null,
          refreshUntil: null,
          refreshUnansweredAt: null,
        })
        .where('id', '=', id)
        .where('tokenVersion', '=', tokenVersion)
        .where('status', '<>', 'disconnected')
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },

    /** The same pair in another envelope. False when another pair is there by now. */
    async reseal(id: string, before: string, after: string): Promise<boolean> {
      const { numUpdatedRows } = await db
        .updateTable('connections')
        .set({ tokens: after })
        .where('id', '=', id)
        .where('tokens', '=', before)
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },

    /** Gives the lease back. `unanswered`: a refresh was sent, and what became of it is unknown. */
    async releaseRefresh(id: string, owner: string, options: { unanswered: boolean }): Promise<void> {
      await db
        .updateTable('connections')
        .set({
          refreshOwner: null,
          refreshUntil: null,
          ...(options.unanswered && { refreshUnansweredAt: sql`coalesce(refresh_unanswered_at, now())` }),
        })
        .where('id', '=', id)
        .where('refreshOwner', '=', owner)
        .execute();
    },

    /**
     * Takes over what `/me` says. Companies that are missing from a complete answer are lost: their records and marks stay.
     * Assets that nobody able to read them is in charge of become this connection's. With `owner`, nothing is
     * changed unless that one holds the lease of the connection's sync: an answer from before says nothing any more. Where all
     * is as before, that is one read; none, where it was read with the lease (`before`). Returns also what can be read now, as `companies` does.
     * @throws LeaseLost
     */
    async setCompanies(
      id: string,
      companies: { id: string; name: string }[],
      options: { complete: boolean; owner?: string; before?: Standing | undefined },
    ): Promise<{ gained: string[]; lost: string[]; readable: ReadableCompany[] }> {
      const named = new Map(companies.map(({ id, name }) => [id, { id, name }]));
      const ids = [...named.keys()].sort();
      const ours = (owner: string | null | undefined) => {
        if (options.owner !== undefined && owner !== options.owner) {
          throw new LeaseLost(`another process has taken over the sync of connection ${id}`);
        }
      };
      const read = options.before ? undefined : await standing(db, id);
      if (!options.before) ours(read?.syncOwner);
      const before = options.before ?? read;
      if (!before || before.status === 'disconnected') return { gained: [], lost: [], readable: [] };
      const { readable } = before;
      const same =
        readable.filter((company) => named.get(company.id)?.name === company.name).length === named.size &&
        (readable.length === named.size || !options.complete);
      if (same && !(before.shared && (await adoptableBy(db, id)))) return { gained: [], lost: [], readable };
      const changed = await db.transaction().execute(async (tx) => {
        const connection = await tx
          .selectFrom('connections')
          .select(['status', 'syncOwner'])
          .where('id', '=', id)
          .forNoKeyUpdate()
          .executeTakeFirst();
        ours(connection?.syncOwner);
        if (!connection || connection.status === 'disconnected') return { gained: [], lost: [] };
        if (ids.length > 0) {
          await tx
            .insertInto('companies')
            .values(ids.map((companyId) => named.get(companyId)!))
            .onConflict((conflict) =>
              conflict
                .column('id')
                .doUpdateSet({ name: sql`excluded.name` })
                .where(sql<boolean>`companies.name IS DISTINCT FROM excluded.name`),
            )
            .execute();
        }
        const back = await tx
          .selectFrom('access')
          .select(['companyId', 'lostAt'])
          .where('connectionId', '=', id)
          .where('lostAt', 'is not', null)
          .execute();
        const gained = ids.length
          ? (
              await sql<{ companyId: string }>`
                INSERT INTO access (connection_id, company_id)
                SELECT ${id}, unnest(${ids}::text[])
                ON CONFLICT (connection_id, company_id) DO UPDATE SET lost_at = NULL, gained_at = now()
                  WHERE access.lost_at IS NOT NULL
                RETURNING company_id`.execute(tx)
            ).rows
          : [];
        const lost = options.complete
          ? await tx
              .updateTable('access')
              .set({ lostAt: sql`now()` })
              .where('connectionId', '=', id)
              .where('lostAt', 'is', null)
              .$if(ids.length > 0, (query) => query.where('companyId', 'not in', ids))
              .returning('companyId')
              .execute()
          : [];
        if (connection.status === 'active') {
          await adoptWork(tx, id);
          await tryAgain(
            tx,
            id,
            back.map((row) => row.companyId).filter((companyId) => gained.some((row) => row.companyId === companyId)),
          );
        }
        if (lost.length > 0) {
          await leaveWork(
            tx,
            id,
            lost.map((row) => row.companyId),
          );
        }
        for (const { companyId } of gained) {
          const lostAt = back.find((row) => row.companyId === companyId)?.lostAt?.toISOString();
          await addEvent(tx, {
            kind: 'company.gained',
            connectionId: id,
            data: { companyId, ...(lostAt && { lostAt }) },
          });
        }
        for (const { companyId } of lost) {
          await addEvent(tx, { kind: 'company.lost', connectionId: id, data: { companyId } });
        }
        return { gained: gained.map((row) => row.companyId), lost: lost.map((row) => row.companyId) };
      });
      return { ...changed, readable: (await standing(db, id))?.readable ?? [] };
    },

    /** Whether the state of a connect attempt is used for the first time. It is remembered until it expires anyway. */
    async useState(state: string, until: Date): Promise<boolean> {
      await db.deleteFrom('usedStates').where('until', '<', sql<Date>`now()`).execute();
      const { numInsertedOrUpdatedRows } = await db
        .insertInto('usedStates')
        .values({ state, until })
        .onConflict((conflict) => conflict.doNothing())
        .executeTakeFirst();
      return numInsertedOrUpdatedRows === 1n;
    },

    /** The companies that connections can read now, each with its mark. */
    async companies(connectionIds: string[]) {
      if (connectionIds.length === 0) return [];
      return db
        .selectFrom('access')
        .innerJoin('companies', 'companies.id', 'access.companyId')
        .select(['access.connectionId', 'companies.id', 'companies.name', 'access.mark'])
        .where('access.connectionId', 'in', connectionIds)
        .where('access.lostAt', 'is', null)
        .orderBy('companies.id')
        .execute();
    },
  };
}

/**
 * What is adoptable becomes this connection's. What failed of it is tried again: perhaps only because the other could not
 * read it any more.
 */
async function adoptWork(tx: Database, id: string): Promise<void> {
  await sql`
    WITH work AS (SELECT assets.id ${adoptable(id)} ORDER BY assets.id FOR UPDATE OF assets)
    UPDATE assets SET connection_id = ${id}, queued_at = NULL, ${afresh} FROM work WHERE assets.id = work.id
  `.execute(tx);
}

/** What failed of companies that can be read again is tried again: perhaps it failed because they could not. */
async function tryAgain(tx: Database, id: string, companyIds: string[]): Promise<void> {
  if (companyIds.length === 0) return;
  await sql`
    WITH work AS (
      SELECT id FROM assets
      WHERE connection_id = ${id} AND company_id = ANY(${companyIds}::text[]) AND ${failed}
      ORDER BY id FOR UPDATE)
    UPDATE assets SET ${afresh} FROM work WHERE assets.id = work.id`.execute(tx);
}

/** Failed, and not because its listing cannot be read: that is the same for everybody. */
const failed = sql`(assets.state = 'failed' AND assets.listed <> '{}')`;
const afresh = sql`
  state = CASE WHEN ${failed} THEN 'pending' ELSE assets.state END,
  next_at = CASE WHEN ${failed} THEN now() ELSE assets.next_at END,
  attempts = CASE WHEN ${failed} THEN 0 ELSE assets.attempts END,
  reason = CASE WHEN ${failed} THEN NULL ELSE assets.reason END`;

/**
 * Hands the assets of a connection that can no longer read them to one that can, and takes them off the queue and out of
 * workers' hands; what nobody can read waits. Rows for which that changes nothing are left alone: there may be a million.
 */
export async function leaveWork(tx: Database, id: string, companyIds?: string[]): Promise<void> {
  await sql`
    WITH readers AS (
      SELECT DISTINCT ON (a.company_id) a.company_id, c.id AS other_id
      FROM connections c JOIN access a ON a.connection_id = c.id
      WHERE c.id <> ${id} AND c.status = 'active' AND a.lost_at IS NULL
        AND a.company_id IN (SELECT company_id FROM access WHERE connection_id = ${id})
      ORDER BY a.company_id, c.connected_at, c.id
    ), work AS (
      SELECT assets.id, readers.other_id FROM assets LEFT JOIN readers ON readers.company_id = assets.company_id
      WHERE assets.connection_id = ${id} AND assets.next_at IS NOT NULL
        ${companyIds ? sql`AND assets.company_id = ANY(${companyIds}::text[])` : sql``}
        AND (readers.other_id IS NOT NULL OR assets.queued_at IS NOT NULL OR assets.lease_until IS NOT NULL)
      ORDER BY assets.id FOR UPDATE OF assets
    )
    UPDATE assets SET
      connection_id = coalesce(work.other_id, connection_id),
      queued_at = NULL,
      lease = lease + 1,
      lease_until = NULL,
      state = CASE state WHEN 'transferring' THEN 'pending' ELSE state END
    FROM work WHERE assets.id = work.id
  `.execute(tx);
}
