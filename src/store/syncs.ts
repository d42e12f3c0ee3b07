import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Grant } from './connections.ts';
import { type Counts, type Decide, type KnownAsset, type ListedAsset, recordListed } from './listing.ts';
import { passPage, type QuietPage } from './quiet-page.ts';
import type { Database, Sync, SyncMode, SyncPosition, SyncScope } from './schema.ts';
import { type Standing, standingOf } from './standing.ts';
import { type EndedSync, endPlainly, endSync, type SyncOutcome } from './sync-end.ts';
import { holdLease, turnLost } from './sync-lease.ts';

export type SyncRecords = ReturnType<typeof syncRecords>;

/** A run in hand, and what it goes by of its connection. */
export type TakenSync = Sync & {
  userId: string;
  settings: Record<string, unknown>;
  /** Of the connection when the run began, where that was read with it. */
  standing?: Standing;
  grant?: Grant;
};

/** Runs of a connection's listing: one running, and at most one waiting over everything and over each part that was named. */
export function syncRecords(db: Database, quick = db) {
  return {
    /**
     * Asks for a run. One that is already waiting and does the same, or more, is the one that is meant; one that waits and
     * does less becomes it. Undefined when the connection has ended. With `bucket`, a comparison of the records and the
     * bucket follows when the run has ended.
     */
    async request(
      connectionId: string,
      mode: SyncMode,
      scope: SyncScope = {},
      options: { bucket?: boolean } = {},
    ): Promise<string | undefined> {
      const id = randomUUID();
      const { rows } = await sql<{ id: string }>`
        INSERT INTO syncs (id, connection_id, mode, scope, with_bucket, status)
        SELECT ${id}, id, ${mode}, ${JSON.stringify(scope)}::jsonb, ${options.bucket ?? false}, 'waiting' FROM connections
        WHERE id = ${connectionId} AND status <> 'disconnected' FOR SHARE
        ON CONFLICT (connection_id, (CASE WHEN scope = '{}' THEN '' ELSE mode END), md5(scope::text)) WHERE status = 'waiting'
        DO UPDATE SET mode = CASE WHEN excluded.mode = 'full' THEN 'full' ELSE syncs.mode END,
          with_bucket = syncs.with_bucket OR excluded.with_bucket
        RETURNING id`.execute(db);
      return rows[0]?.id;
    },

    /**
     * Asks for a run over everything and takes it, in one statement. Undefined, and nothing is done, where one waits or was
     * interrupted, another owner holds the lease, or the connection may ask for nothing: that is for `request` and `takeNext`.
     */
    async begin(connectionId: string, mode: SyncMode, owner: string, leaseMs: number): Promise<TakenSync | undefined> {
      const { rows } = await sql<
        TakenSync & Pick<Grant, 'tokens' | 'tokenVersion' | 'accessExpiresAt' | 'parkedUntil'>
      >`
        WITH taken AS (
          UPDATE connections SET sync_owner = ${owner}, sync_until = now() + ${leaseMs} * interval '1 ms'
          WHERE id = ${connectionId} AND status = 'active' AND (parked_until IS NULL OR parked_until <= now())
            AND (sync_until IS NULL OR sync_until <= now())
            AND NOT EXISTS (SELECT FROM syncs WHERE connection_id = ${connectionId} AND status IN ('waiting', 'running'))
          RETURNING id, user_id, settings, tokens, token_version, access_expires_at, parked_until,
            ${standingOf(connectionId)}
        ), begun AS (
          INSERT INTO syncs (id, connection_id, mode, scope, status, started_at)
          SELECT ${randomUUID()}, id, ${mode}, '{}', 'running', now() FROM taken RETURNING *
        )
        SELECT begun.*, taken.user_id, taken.settings, tokens, token_version, access_expires_at, parked_until,
          jsonb_build_object('status', taken.status, 'shared', shared, 'readable', readable) AS standing
        FROM begun, taken /* prepared: begin_sync */`.execute(quick);
      if (!rows[0]) return undefined;
      const { tokens, tokenVersion, accessExpiresAt, parkedUntil, ...sync } = rows[0];
      const grant: Grant = {
        userId: sync.userId,
        status: 'active',
        tokens,
        tokenVersion,
        accessExpiresAt,
        parkedUntil,
      };
      return { ...sync, grant };
    },

    /**
     * The next run of the connection for `owner`, which holds the lease from now on: the one that was interrupted, or the
     * oldest that waits. `busy` while another owner holds the lease; undefined when nothing is left, or the connection is
     * parked (the lease is given back).
     */
    async takeNext(connectionId: string, owner: string, leaseMs: number): Promise<TakenSync | 'busy' | undefined> {
      return db.transaction().execute(async (tx) => {
        const connection = await sql<{
          userId: string;
          settings: Record<string, unknown>;
          open: boolean;
          busy: boolean;
        }>`
          SELECT user_id, settings, status = 'active' AND (parked_until IS NULL OR parked_until <= now()) AS open,
            sync_until > now() AND sync_owner <> ${owner} AS busy
          FROM connections WHERE id = ${connectionId} FOR UPDATE`.execute(tx);
        const row = connection.rows[0];
        if (row?.busy) return 'busy';
        const next = row?.open
          ? await tx
              .selectFrom('syncs')
              .selectAll()
              .where('connectionId', '=', connectionId)
              .where('status', 'in', ['running', 'waiting'])
              .orderBy(sql`status = 'waiting'`)
              .orderBy('requestedAt')
              .limit(1)
              .executeTakeFirst()
          : undefined;
        await sql`
          UPDATE connections SET sync_owner = ${next ? owner : null},
            sync_until = ${next ? sql`now() + ${leaseMs} * interval '1 ms'` : null}
          WHERE id = ${connectionId}`.execute(tx);
        if (!row || !next) return undefined;
        const taken = await tx
          .updateTable('syncs')
          .set({ status: 'running', startedAt: sql`coalesce(started_at, now())` })
          .where('id', '=', next.id)
          .returningAll()
          .executeTakeFirstOrThrow();
        return { ...taken, userId: row.userId, settings: row.settings };
      });
    },

    /** Keeps the lease. False when it is lost. */
    async renew(connectionId: string, owner: string, leaseMs: number): Promise<boolean> {
      return (await holdLease(db, connectionId, owner, leaseMs)) > 0n;
    },

    async release(connectionId: string, owner: string): Promise<void> {
      await db
        .updateTable('connections')
        .set({ syncOwner: null, syncUntil: null })
        .where('id', '=', connectionId)
        .where('syncOwner', '=', owner)
        .execute();
    },

    /** The settings of a connection, and those of these assets that are known. */
    async known(
      connectionId: string,
      ids: string[],
    ): Promise<{ settings: Record<string, unknown>; assets: Map<string, KnownAsset> }> {
      const { rows } = await sql<KnownAsset & { id: string | null; settings: Record<string, unknown> }>`
        SELECT a.id, a.connection_id, a.state, a.reason, a.left_out, a.name, a.size, a.upload_date, a.listed,
          a.media, a.mirrored_at, a.transcript_state, a.thumbnail_state, c.settings
        FROM connections c LEFT JOIN assets a ON a.id = ANY(${ids}::text[]) WHERE c.id = ${connectionId}
        /* prepared: known */`.execute(quick);
      return {
        settings: rows[0]?.settings ?? {},
        assets: new Map(rows.flatMap((asset) => (asset.id === null ? [] : [[asset.id, asset] as const]))),
      };
    },

    /**
     * A page without news: all of it is known, and nothing is to be done for any of it. One statement writes where the run
     * goes on; with `mark`, as in `recordPage`.
     * @throws TurnLost
     */
    passPage: (page: QuietPage): Promise<void> => passPage(quick, page),

    /**
     * Takes a page of a company's listing into the records, and with it where the run goes on, in one transaction.
     * With `mark`, the listing of that company is complete: only now its mark moves, and never back.
     * @throws TurnLost
     */
    async recordPage(page: {
      sync: Sync;
      owner: string;
      leaseMs: number;
      companyId: string;
      assets: ListedAsset[];
      decide: Decide;
      position: SyncPosition;
      mark?: number | null;
      /** Everything on the page, whether it is wanted or not: for a run that finds out at its end what is missing. */
      sighted?: string[];
      /** Records of items without a readable id are told from others by this prefix; all but these are listed no more. */
      repaired?: { prefix: string; except: string[] };
    }): Promise<Counts> {
      const { sync, owner, companyId } = page;
      return db.transaction().execute(async (tx) => {
        if ((await holdLease(tx, sync.connectionId, owner, page.leaseMs)) === 0n) throw turnLost(sync.connectionId);
        const counts = await recordListed(tx, {
          syncId: sync.id,
          connectionId: sync.connectionId,
          companyId,
          assets: page.assets,
          decide: page.decide,
        });
        await tx
          .updateTable('syncs')
          .set({
            position: JSON.stringify(page.position) as never,
            pages: sql`pages + 1`,
            seen: sql`seen + ${page.assets.length}`,
            new: sql`new + ${counts.new}`,
            changed: sql`changed + ${counts.changed}`,
          })
          .where('id', '=', sync.id)
          .execute();
        if (page.sighted && page.sighted.length > 0) {
          await tx.insertInto('sightings').values({ syncId: sync.id, companyId, ids: page.sighted }).execute();
        }
        if (page.mark !== undefined && page.mark !== null) {
          await tx
            .updateTable('access')
            .set({ mark: sql`greatest(mark, ${page.mark})` })
            .where('connectionId', '=', sync.connectionId)
            .where('companyId', '=', companyId)
            .execute();
        }
        if (page.repaired) {
          await sql`
            DELETE FROM assets WHERE company_id = ${companyId} AND starts_with(id, ${page.repaired.prefix})
              AND state = 'failed' AND media IS NULL AND NOT id = ANY(${page.repaired.except}::text[])`.execute(tx);
        }
        return counts;
      });
    },

    /**
     * The run has ended; `passing`: with a last page without news, which is written with it. Undefined, and nothing happens,
     * when another process has taken it over.
     */
    async finish(sync: Sync, owner: string, outcome: SyncOutcome, passing?: QuietPage): Promise<EndedSync | undefined> {
      const ended = await endPlainly(quick, sync, owner, outcome, passing);
      if (ended) return ended;
      if (passing) await passPage(quick, passing);
      return endSync(db, sync, owner, outcome);
    },

    /** Connections for which a run waits, or was interrupted, and nobody is at it. */
    async unattended(): Promise<string[]> {
      const { rows } = await sql<{ connectionId: string }>`
        SELECT DISTINCT s.connection_id FROM syncs s JOIN connections c ON c.id = s.connection_id
        WHERE s.status IN ('waiting', 'running') AND c.status = 'active'
          AND (c.sync_until IS NULL OR c.sync_until < now())
          AND (c.parked_until IS NULL OR c.parked_until < now())
          AND coalesce(s.started_at, s.requested_at) < now() - interval '5 seconds'`.execute(db);
      return rows.map((row) => row.connectionId);
    },

    /** The trace of a run, for what follows from it. */
    async traced(id: string, traceparent: string): Promise<void> {
      await db.updateTable('syncs').set({ traceparent }).where('id', '=', id).execute();
    },

    /** How many runs wait or are running. */
    async open(): Promise<{ waiting: number; running: number }> {
      const { rows } = await sql<{ waiting: number; running: number }>`
        SELECT count(*) FILTER (WHERE status = 'waiting') AS waiting, count(*) FILTER (WHERE status = 'running') AS running
        FROM syncs WHERE status IN ('waiting', 'running')`.execute(db);
      return rows[0]!;
    },

    /** A page of runs, the newest first, from behind `after`. `micros`: microseconds since the epoch at which it was asked for. */
    async search(filter: {
      connectionId?: string | undefined;
      after?: { micros: number; id: string } | undefined;
      limit: number;
    }): Promise<(Sync & { micros: number })[]> {
      const { after } = filter;
      return db
        .selectFrom('syncs')
        .selectAll()
        .select(sql<number>`(extract(epoch FROM requested_at) * 1000000)::bigint`.as('micros'))
        .$if(filter.connectionId !== undefined, (query) => query.where('connectionId', '=', filter.connectionId!))
        .$if(after !== undefined, (query) =>
          query.where(
            sql<boolean>`(requested_at, id) < ('epoch'::timestamptz + ${after!.micros} * interval '1 microsecond', ${after!.id})`,
          ),
        )
        .orderBy('requestedAt', 'desc')
        .orderBy('id', 'desc')
        .limit(filter.limit)
        .execute();
    },

    async get(id: string): Promise<Sync | undefined> {
      return db.selectFrom('syncs').selectAll().where('id', '=', id).executeTakeFirst();
    },
  };
}
