import { type RawBuilder, sql } from 'kysely';
import type { Asset, AssetState, Database, Media, OwnedAsset, UploadPart, UploadUnderWay } from '../database/schema.ts';
import { inMs } from '../database/time.ts';
import { addEvent } from '../events/events.ts';
import { dispatch, type QueuedAsset, type Slots, traceparent } from './due.ts';
import { type LeaseEnd, leaseRow } from './history.ts';
import { type AssetLease, inHand, leaseRecords, type Mirrored, workable } from './leases.ts';

/** What failed or was unavailable is pending again; what waits keeps its state. */
const afresh = sql`
  state = CASE WHEN state IN ('failed', 'unavailable') THEN 'pending' ELSE state END,
  processing_since = CASE WHEN state IN ('failed', 'unavailable') THEN NULL ELSE processing_since END,
  next_at = now(), attempts = 0, waits = 0, reason = NULL`;

export function assetRecords(db: Database) {
  const leases = leaseRecords(db);

  /**
   * Writes what a worker found, if the lease is still its own, and gives the asset back; with it what happened in the lease.
   * False: it is not.
   */
  async function give(
    lease: AssetLease,
    values: Record<string, unknown>,
    outcome: LeaseEnd,
    on: Database = db,
  ): Promise<boolean> {
    const given = on
      .updateTable('assets')
      .set({ queuedAt: null, leaseUntil: null, ...values })
      .where(inHand(lease))
      .returning(['id', 'syncId']);
    const { numAffectedRows } = await sql`WITH given AS (${given}) ${leaseRow(lease, outcome)}`.execute(on);
    return (numAffectedRows ?? 0n) > 0n;
  }

  async function setUpload(
    lease: AssetLease,
    upload: UploadUnderWay | null,
    values: Record<string, unknown> = {},
  ): Promise<boolean> {
    return db.transaction().execute(async (tx) => {
      const { numUpdatedRows } = await tx
        .updateTable('assets')
        .set({ upload: upload === null ? null : (JSON.stringify(upload) as never), ...values })
        .where(inHand(lease))
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return false;
      await tx.deleteFrom('uploadParts').where('assetId', '=', lease.assetId).execute();
      return true;
    });
  }

  /** What an event of an asset is about: it, and who was in charge. */
  async function about({ assetId }: AssetLease, tx: Database): Promise<{ assetId: string; connectionId?: string }> {
    const row = await tx.selectFrom('assets').select('connectionId').where('id', '=', assetId).executeTakeFirst();
    return { assetId, ...(row?.connectionId && { connectionId: row.connectionId }) };
  }

  /** The last word on an asset, unless a listing has changed it since the lease began: then it is looked at again at once. */
  async function conclude(
    lease: AssetLease,
    state: 'unavailable' | 'failed',
    reason: string,
    on: Database = db,
  ): Promise<boolean> {
    const since = sql`revision = ${lease.revision}::int`;
    const values = {
      state: sql`CASE WHEN ${since} THEN ${state} ELSE 'pending' END`,
      reason,
      nextAt: sql`CASE WHEN ${since} THEN NULL ELSE now() END`,
      attempts: state === 'failed' ? sql`CASE WHEN ${since} THEN attempts + 1 ELSE 0 END` : 0,
      waits: 0,
      processingSince: null,
    };
    return give(lease, values, { outcome: state, reason }, on);
  }

  return {
    async get(id: string): Promise<Asset | undefined> {
      return db.selectFrom('assets').selectAll().where('id', '=', id).executeTakeFirst();
    },

    /** Those of these that are known. */
    async some(ids: string[]): Promise<Asset[]> {
      return ids.length === 0 ? [] : db.selectFrom('assets').selectAll().where('id', 'in', ids).execute();
    },

    dispatch: (slots: Slots) => dispatch(db, slots),

    /**
     * Assets whose worker let its lease run out, and those whose job is said to be on the queue for `staleMs` although no
     * worker has had it: the worker was killed, or the job is lost.
     * Those that nobody may work on at present leave the queue instead.
     */
    async overdue(staleMs: number): Promise<QueuedAsset[]> {
      const { rows } = await sql<QueuedAsset & { queued: boolean }>`
        WITH late AS MATERIALIZED (
          SELECT id, sync_id, lease_until > queued_at AS lost FROM assets
          WHERE queued_at IS NOT NULL AND (lease_until IS NULL OR lease_until < now())
            AND (queued_at < lease_until OR queued_at < now() - ${staleMs} * interval '1 ms')
          ORDER BY queued_at LIMIT 1000 FOR UPDATE SKIP LOCKED
        ), told AS (
          INSERT INTO asset_history (asset_id, kind, sync_id) SELECT id, 'lost', sync_id FROM late WHERE lost
        )
        UPDATE assets SET queued_at = CASE WHEN ${workable} THEN now() END FROM late WHERE assets.id = late.id
        RETURNING assets.id, state, lease, queued_at IS NOT NULL AS queued, ${traceparent}`.execute(db);
      return rows.filter((row) => row.queued);
    },

    /**
     * The next lease at an asset whose job came off the queue; undefined when there is nothing to do, or not by us.
     * What may not be worked on at present leaves the queue, and makes room. What was pending is on its way from here on.
     */
    async take(id: string, leaseMs: number): Promise<OwnedAsset | undefined> {
      return leases.take({ id, leaseMs });
    },

    /** Keeps leases. Returns those that are still held; for the others the worker must stop. */
    async renew(leases: AssetLease[], leaseMs: number): Promise<Set<string>> {
      if (leases.length === 0) return new Set();
      // In the order of ids, as all that locks several assets: so nobody waits in a circle.
      const { rows } = await sql<{ id: string }>`
        WITH mine AS (
          SELECT a.id FROM assets a
          JOIN unnest(${leases.map((t) => t.assetId)}::text[], ${leases.map((t) => t.number)}::int[]) AS held (id, lease)
            ON a.id = held.id AND a.lease = held.lease AND a.lease_until IS NOT NULL
          JOIN connections c ON c.id = a.connection_id AND c.status = 'active'
          ORDER BY a.id FOR UPDATE OF a)
        UPDATE assets SET lease_until = now() + ${leaseMs} * interval '1 ms'
        FROM mine WHERE assets.id = mine.id
        RETURNING assets.id`.execute(db);
      return new Set(rows.map((row) => row.id));
    },

    /** The transfer begins: of what was pending, it has. */
    async startTransfer(lease: AssetLease): Promise<boolean> {
      const { numUpdatedRows } = await db
        .updateTable('assets')
        .set({ state: 'transferring' })
        .where(inHand(lease))
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },

    /**
     * Another file is about to take the place of what is in the bucket: from here on the row says of neither that it is
     * there, and remembers `superseded`, the keys that one of them has.
     */
    async replace(lease: AssetLease, superseded: string[]): Promise<boolean> {
      const { numUpdatedRows } = await db
        .updateTable('assets')
        .set({
          recordKey: null,
          media: sql`media || '{"version": ""}'`,
          ...(superseded.length > 0 && { thumbnail: null, transcriptKeys: null, sidecarFiles: '{}' as never }),
          superseded: sql`ARRAY(SELECT DISTINCT unnest(superseded || ${superseded}::text[]))`,
        })
        .where(inHand(lease))
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },

    /** The media is in the bucket and checked; a later failure of this lease need not fetch it again. */
    async saveMedia(lease: AssetLease, media: Media): Promise<boolean> {
      const values = { media: JSON.stringify(media) as never, bytes: media.bytes, verifiedAt: sql<Date>`now()` };
      // Most came in one stream: there are no parts to forget, and none can be added.
      const { numUpdatedRows } = await db
        .updateTable('assets')
        .set(values)
        .where(inHand(lease))
        .where('upload', 'is', null)
        .executeTakeFirst();
      return numUpdatedRows > 0n || setUpload(lease, null, values);
    },

    /** An upload in parts has begun, or what there was of one is gone; the parts of the one before are forgotten. */
    async saveUpload(lease: AssetLease, upload: UploadUnderWay | null): Promise<boolean> {
      return setUpload(lease, upload);
    },

    /** A part is stored and proven. */
    async savePart(lease: AssetLease, part: UploadPart): Promise<boolean> {
      const { numAffectedRows } = await sql`
        INSERT INTO upload_parts (asset_id, number, bytes, etag, crc32)
        SELECT id, ${part.number}, ${part.bytes}, ${part.etag}, ${part.crc32} FROM assets
        WHERE ${inHand(lease)} AND upload IS NOT NULL FOR SHARE
        ON CONFLICT (asset_id, number) DO UPDATE
          SET bytes = excluded.bytes, etag = excluded.etag, crc32 = excluded.crc32, stored_at = now()`.execute(db);
      return (numAffectedRows ?? 0n) > 0n;
    },

    /** The parts of the upload that is under way, by number. */
    async parts(assetId: string): Promise<UploadPart[]> {
      return db
        .selectFrom('uploadParts')
        .select(['number', 'bytes', 'etag', 'crc32'])
        .where('assetId', '=', assetId)
        .orderBy('number')
        .execute();
    },

    /** The ids of all uploads that somebody may go on with. */
    async uploads(): Promise<string[]> {
      const { rows } = await sql<{
        id: string;
      }>`SELECT upload->>'id' AS id FROM assets WHERE upload IS NOT NULL`.execute(db);
      return rows.map((row) => row.id);
    },

    /**
     * The record is written, and the lease ends. False if it was not ours any more. A listing that saw another version since
     * the lease began makes the asset pending again; one that saw another name or tags, due for a new record.
     */
    async mirrored(lease: AssetLease, done: Mirrored): Promise<boolean> {
      const { tell } = done;
      if (!tell) return leases.end({ lease, done });
      return db.transaction().execute(async (tx) => {
        const [ended] = await leases.endMirrored([{ lease, done }], tx);
        const data = { key: tell.key, bytes: tell.bytes };
        if (ended) await addEvent(tx, { kind: 'asset.mirrored', ...(await about(lease, tx)), data });
        return ended!;
      });
    },

    /** Still transcoding: looked at again after `waitMs`. Spends no attempt. */
    async processing(lease: AssetLease, waitMs: number): Promise<boolean> {
      return give(
        lease,
        {
          state: 'processing',
          reason: null,
          nextAt: inMs(waitMs),
          waits: 0,
          processingSince: sql`coalesce(processing_since, now())`,
        },
        { outcome: 'processing', waitMs },
      );
    },

    /** The service has no file for it, or it does not exist any more. */
    async unavailable(lease: AssetLease, reason: string): Promise<boolean> {
      return conclude(lease, 'unavailable', reason);
    },

    /** Comes back after `waitMs`. `spent`: it was an attempt; `putOff`: it was none, and is counted by itself. */
    async again(
      lease: AssetLease,
      waitMs: number,
      options: { spent?: boolean; putOff?: boolean; reason: string | null },
    ): Promise<boolean> {
      return give(
        lease,
        {
          state: sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`,
          nextAt: inMs(waitMs),
          reason: options.reason,
          ...(options.spent && { attempts: sql`attempts + 1` }),
          ...(options.putOff && { waits: sql`waits + 1` }),
        },
        { outcome: 'again', reason: options.reason, waitMs },
      );
    },

    /** The settings leave it out. */
    async skip(lease: AssetLease, rule: string, reason: string): Promise<boolean> {
      return give(
        lease,
        {
          state: 'pending',
          skipped: rule,
          reason,
          nextAt: null,
          attempts: 0,
          waits: 0,
          processingSince: null,
        },
        { outcome: 'skipped', reason },
      );
    },

    /** Another connection wants it, and this one does not. */
    async handOver(lease: AssetLease, connectionId: string): Promise<boolean> {
      return give(
        lease,
        {
          connectionId,
          state: sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`,
          nextAt: sql`now()`,
        },
        { outcome: 'handed over' },
      );
    },

    async failed(lease: AssetLease, reason: string): Promise<boolean> {
      return db.transaction().execute(async (tx) => {
        const done = await conclude(lease, 'failed', reason, tx);
        if (done) await addEvent(tx, { kind: 'asset.failed', ...(await about(lease, tx)), data: { reason } });
        return done;
      });
    },

    /** The media is to be looked at again: another version, or none. */
    async startOver(lease: AssetLease): Promise<boolean> {
      return give(
        lease,
        { state: 'pending', nextAt: sql`now()`, attempts: 0, waits: 0, reason: null },
        { outcome: 'started over' },
      );
    },

    /** Transcript and thumbnail that are still missing are given up; the media stays as it is. */
    async giveUpSidecars(lease: AssetLease, reason: string): Promise<boolean> {
      return give(
        lease,
        {
          nextAt: sql`CASE WHEN revision <> ${lease.revision}::int THEN now() END`,
          attempts: 0,
          waits: 0,
          reason,
          transcriptState: sql`CASE transcript_state WHEN 'pending' THEN 'gave_up' ELSE transcript_state END`,
          thumbnailState: sql`CASE thumbnail_state WHEN 'pending' THEN 'gave_up' ELSE thumbnail_state END`,
        },
        { outcome: 'gave up', reason },
      );
    },

    /**
     * Due now, as on the first day: what failed or was unavailable, what waits to be tried again, and transcripts and
     * thumbnails that were given up. False: it is gone, cannot be read from its listing, is in a worker's hands, or whole.
     */
    async retry(id: string): Promise<boolean> {
      const { numAffectedRows } = await sql`
        UPDATE assets SET ${afresh},
          transcript_deadline = CASE transcript_state WHEN 'gave_up' THEN NULL ELSE transcript_deadline END,
          transcript_state = CASE transcript_state WHEN 'gave_up' THEN 'pending' ELSE transcript_state END,
          thumbnail_state = CASE thumbnail_state WHEN 'gave_up' THEN 'pending' ELSE thumbnail_state END
        WHERE id = ${id} AND state <> 'gone' AND listed <> '{}' AND skipped IS NULL AND (lease_until IS NULL OR lease_until < now())
          AND (state <> 'mirrored' OR next_at IS NOT NULL OR transcript_state = 'gave_up' OR thumbnail_state = 'gave_up')
      `.execute(db);
      return (numAffectedRows ?? 0n) > 0n;
    },

    /** Up to `limit` of what has failed of a connection is due now, as on the first day. Returns how many. */
    async retryFailed(connectionId: string, limit: number): Promise<number> {
      const { numAffectedRows } = await sql`
        WITH work AS (
          SELECT id FROM assets WHERE connection_id = ${connectionId} AND state = 'failed' AND listed <> '{}'
            AND (lease_until IS NULL OR lease_until < now())
          ORDER BY id LIMIT ${limit} FOR UPDATE)
        UPDATE assets SET ${afresh} FROM work WHERE assets.id = work.id`.execute(db);
      return Number(numAffectedRows ?? 0n);
    },

    /** What was mirrored in the last `ms`, and in how many seconds. */
    async recent(ms: number) {
      const { rows } = await sql<{ count: number; bytes: number; seconds: number }>`
        SELECT count(*) AS count, coalesce(sum(bytes), 0)::bigint AS bytes,
          greatest(1, least(${ms} / 1000.0, extract(epoch FROM now() - min(mirrored_at))))::float8 AS seconds
        FROM assets WHERE mirrored_at > now() - ${ms} * interval '1 ms'`.execute(db);
      return rows[0]!;
    },

    /** Of these projects or types those that no asset is of. */
    async ofNone(facet: 'projectId' | 'assetType', names: string[]): Promise<string[]> {
      if (names.length === 0) return [];
      const { rows } = await sql<{ name: string }>`
        SELECT DISTINCT name FROM unnest(${names}::text[]) AS named (name)
        WHERE NOT EXISTS (SELECT FROM asset_facets WHERE ${sql.ref(`asset_facets.${facet}`)} = named.name)
        ORDER BY name`.execute(db);
      return rows.map(({ name }) => name);
    },

    /** A page of assets by id, each with whether its connection can read it at present. */
    async search(filter: {
      id?: string | undefined;
      connectionId?: string | undefined;
      companyId?: string | undefined;
      projectId?: string | undefined;
      state?: AssetState | undefined;
      type?: string | undefined;
      skipped?: boolean | undefined;
      q?: string | undefined;
      after?: string | undefined;
      limit: number;
    }): Promise<(Asset & { readable: boolean })[]> {
      const conditions = [
        filter.id !== undefined && sql`assets.id = ${filter.id}`,
        filter.connectionId !== undefined && sql`assets.connection_id = ${filter.connectionId}`,
        filter.companyId !== undefined && sql`assets.company_id = ${filter.companyId}`,
        filter.state !== undefined && sql`assets.state = ${filter.state}`,
        // While few are, they are found by the index of when that was.
        filter.state === 'mirrored' && sql`assets.mirrored_at IS NOT NULL`,
        filter.skipped === true && sql`assets.skipped IS NOT NULL`,
        filter.skipped === false && sql`assets.skipped IS NULL`,
      ].filter((condition) => condition !== false);
      const facets = [
        filter.projectId !== undefined && sql`asset_facets.project_id = ${filter.projectId}`,
        filter.type !== undefined && sql`asset_facets.asset_type = ${filter.type}`,
      ].filter((condition) => condition !== false);
      const named = filter.q && namedLike(filter.q);
      const after = filter.after === undefined ? [] : [sql`id > ${filter.after}`];
      const all = (...each: RawBuilder<unknown>[]) => sql.join([sql`true`, ...each], sql` AND `);
      // Each asset has its row there, so of those that are found by it alone the assets need not be read.
      const faceted = (...more: RawBuilder<unknown>[]) =>
        conditions.length === 0
          ? sql`SELECT id FROM asset_facets WHERE ${all(...after, ...facets, ...more)}`
          : sql`SELECT asset_facets.id FROM asset_facets JOIN assets USING (id) WHERE ${all(...after, ...facets, ...conditions, ...more)}`;
      const page = (id: RawBuilder<unknown>) => sql`ORDER BY ${id} LIMIT ${filter.limit}`;
      const found = named
        ? sql`
            (${faceted(named)} ${page(sql`asset_facets.id`)})
            UNION (${faceted(sql`asset_facets.id = ${filter.q!}`)}) ${page(sql`id`)}`
        : facets.length > 0
          ? sql`${faceted()} ${page(sql`asset_facets.id`)}`
          : sql`SELECT id FROM assets WHERE ${all(...after, ...conditions)} ${page(sql`id`)}`;
      const { rows } = await sql<Asset & { readable: boolean }>`
        SELECT assets.*, EXISTS (
          SELECT 1 FROM access a JOIN connections c ON c.id = a.connection_id
          WHERE a.connection_id = assets.connection_id AND a.company_id = assets.company_id AND a.lost_at IS NULL
            AND c.status <> 'disconnected') AS readable
        FROM assets WHERE assets.id = ANY(ARRAY(${found})) ORDER BY id`.execute(db);
      return rows;
    },
  };
}

/** What stands before a word in the name of a file. */
const beforeWords = [' ', '_', '-', '.', '(', '+'];

/**
 * Names with this part, in any case. One or two letters or digits are in no index of three: these are looked for where a
 * word begins, which is.
 */
function namedLike(part: string): RawBuilder<unknown> {
  const literal = (text: string) => text.replace(/[\\%_]/g, '\\$&');
  const patterns = /^[a-z\d]{1,2}$/i.test(part)
    ? [`${part}%`, ...beforeWords.map((before) => `%${literal(before)}${part}%`)]
    : [`%${literal(part)}%`];
  return sql`(${sql.join(
    patterns.map((pattern) => sql`asset_facets.name ILIKE ${pattern}`),
    sql` OR `,
  )})`;
}
