import { type RawBuilder, sql } from 'kysely';
import { dispatch, type QueuedAsset, type Room, traceparent } from './dispatch.ts';
import { addEvent } from './events.ts';
import { gathered } from './gather.ts';
import { newStory, type Story, type TurnEnd, told, turnRow } from './happenings.ts';
import type {
  Artefacts,
  Asset,
  AssetState,
  Database,
  Media,
  OwnedAsset,
  UploadPart,
  UploadUnderWay,
} from './schema.ts';

export type AssetRecords = ReturnType<typeof assetRecords>;

/**
 * A worker's hold on an asset: all it writes is refused once another worker has the next turn. And what it found says
 * nothing of what a listing has seen since: `revision`, `size` and `uploadDate` are those of when the turn began.
 */
export interface Turn {
  assetId: string;
  turn: number;
  revision: number;
  size: number | null;
  uploadDate: number | null;
  story: Story;
}

export function turnOf({ id, turn, revision, size, uploadDate }: Asset): Turn {
  return { assetId: id, turn, revision, size, uploadDate, story: newStory() };
}

/** The turn is still its worker's: neither taken away nor given back. */
const inHand = ({ assetId, turn }: Turn) =>
  sql<boolean>`id = ${assetId} AND turn = ${turn}::int AND turn_until IS NOT NULL`;

/** There is something to do for an asset, and its connection may do it now. */
const workable = sql`(assets.next_at IS NOT NULL AND EXISTS (
  SELECT 1 FROM connections c JOIN access a ON a.connection_id = c.id
  WHERE c.id = assets.connection_id AND c.status = 'active' AND (c.parked_until IS NULL OR c.parked_until <= now())
    AND a.company_id = assets.company_id AND a.lost_at IS NULL))`;

/** What failed or was unavailable is pending again; what waits keeps its state. */
const afresh = sql`
  state = CASE WHEN state IN ('failed', 'unavailable') THEN 'pending' ELSE state END,
  processing_since = CASE WHEN state IN ('failed', 'unavailable') THEN NULL ELSE processing_since END,
  next_at = now(), attempts = 0, waits = 0, reason = NULL`;

/** What is in the bucket of an asset, and when it is looked at next. */
export interface Mirrored extends Artefacts {
  detail: Record<string, unknown>;
  recordKey: string;
  nextAt: Date | null;
  attempts?: number;
  reason?: string | null;
  /** The media in the bucket, where that is not saved yet. */
  media?: Media | undefined;
  /** The media that has just come to the bucket, for an event that says so. */
  tell?: Media | undefined;
}

const mediaValues = (media: Media) => ({
  media: JSON.stringify(media) as never,
  bytes: media.bytes,
  verifiedAt: sql<Date>`now()`,
});

export function assetRecords(db: Database) {
  /**
   * Writes what a worker found, if the turn is still its own, and gives the asset back; with it what happened in the turn.
   * False: it is not.
   */
  async function give(
    turn: Turn,
    values: Record<string, unknown>,
    outcome: TurnEnd,
    on: Database = db,
  ): Promise<boolean> {
    const given = on
      .updateTable('assets')
      .set({ queuedAt: null, turnUntil: null, ...values })
      .where(inHand(turn))
      .returning(['id', 'syncId']);
    const { numAffectedRows } = await sql`WITH given AS (${given}) ${turnRow(turn, outcome)}`.execute(on);
    return (numAffectedRows ?? 0n) > 0n;
  }

  async function setUpload(
    turn: Turn,
    upload: UploadUnderWay | null,
    values: Record<string, unknown> = {},
  ): Promise<boolean> {
    return db.transaction().execute(async (tx) => {
      const { numUpdatedRows } = await tx
        .updateTable('assets')
        .set({ upload: upload === null ? null : (JSON.stringify(upload) as never), ...values })
        .where(inHand(turn))
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return false;
      await tx.deleteFrom('uploadParts').where('assetId', '=', turn.assetId).execute();
      return true;
    });
  }

  const takeTogether = gathered(async (asked: { id: string; leaseMs: number }[]) => {
    const free = sql`queued_at IS NOT NULL AND (turn_until IS NULL OR turn_until < now())`;
    const ids = asked.map(({ id }) => id);
    const leases = asked.map(({ leaseMs }) => leaseMs);
    // In the order of ids, as all that locks several assets: so nobody waits in a circle. And by ids alone, lest the planner
    // read all that is queued.
    const { rows } = await sql<OwnedAsset>`
      WITH locked AS MATERIALIZED (
        SELECT * FROM assets WHERE id = ANY(${ids}::text[]) ORDER BY id FOR UPDATE
      ), free AS (
        SELECT assets.id FROM locked AS assets WHERE ${free} AND ${workable}
      )
      UPDATE assets SET turn = turn + 1,
        turn_until = now() + interval '1 ms' * (
          SELECT min(ms) FROM unnest(${ids}::text[], ${leases}::int[]) AS asked (id, ms) WHERE asked.id = assets.id),
        state = CASE state WHEN 'pending' THEN 'transferring' ELSE state END
      FROM free WHERE assets.id = free.id
      RETURNING assets.*, (SELECT settings FROM connections WHERE id = assets.connection_id) AS settings`.execute(db);
    const taken = new Map(rows.map((row) => [row.id, row]));
    const left = ids.filter((id) => !taken.has(id));
    if (left.length > 0) {
      // The turns above are ours, whatever becomes of this: what stays queued is found when it is overdue.
      await sql`
        WITH stopped AS (
          SELECT id FROM assets WHERE id = ANY(${left}::text[]) AND ${free} AND NOT ${workable} ORDER BY id FOR UPDATE
        )
        UPDATE assets SET queued_at = NULL FROM stopped WHERE assets.id = stopped.id`
        .execute(db)
        .catch(() => {});
    }
    // Whoever asks a second time for the same comes too late.
    return ids.map((id) => {
      const row = taken.get(id);
      taken.delete(id);
      return row;
    });
  });

  /** Whether each turn was still its worker's, and so has ended. */
  async function endAll(ends: { turn: Turn; done: Mirrored }[], on: Database = db): Promise<boolean[]> {
    const found = ends.map(({ turn, done }) => ({
      id: turn.assetId,
      turn: turn.turn,
      revision: turn.revision,
      size: turn.size,
      upload_date: turn.uploadDate,
      next_at: done.nextAt,
      attempts: done.attempts ?? 0,
      reason: done.reason ?? null,
      record_key: done.recordKey,
      detail: done.detail,
      transcript_state: done.transcriptState,
      transcript_keys: done.transcriptKeys,
      transcript_deadline: done.transcriptDeadline,
      thumbnail_state: done.thumbnailState,
      thumbnail: done.thumbnail,
      beside: done.beside,
      media: done.media ?? null,
      began: turn.story.began,
      told: told(turn, { outcome: 'mirrored', reason: done.reason ?? null, nextAt: done.nextAt }),
    }));
    const { rows } = await sql<{ id: string; turn: number }>`
      WITH found AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(${JSON.stringify(found)}::jsonb) AS found (
          id text, turn int, revision int, size bigint, upload_date bigint, next_at timestamptz, attempts int, reason text,
          record_key text, detail jsonb, transcript_state text, transcript_keys jsonb, transcript_deadline timestamptz,
          thumbnail_state text, thumbnail jsonb, beside jsonb, media jsonb, began timestamptz, told jsonb)
      ), held AS (
        SELECT a.id FROM assets a JOIN found ON found.id = a.id AND found.turn = a.turn
        WHERE a.turn_until IS NOT NULL ORDER BY a.id FOR UPDATE OF a
      ), given AS (
        UPDATE assets SET queued_at = NULL, turn_until = NULL,
          state = CASE WHEN assets.size IS NOT DISTINCT FROM found.size
            AND assets.upload_date IS NOT DISTINCT FROM found.upload_date THEN 'mirrored' ELSE 'pending' END,
          next_at = CASE WHEN assets.revision = found.revision THEN found.next_at ELSE now() END,
          attempts = found.attempts, waits = 0, reason = found.reason, processing_since = NULL,
          record_key = found.record_key, outdated = '{}', detail = found.detail,
          mirrored_at = coalesce(mirrored_at, now()),
          transcript_state = found.transcript_state, transcript_keys = found.transcript_keys,
          transcript_deadline = found.transcript_deadline,
          thumbnail_state = found.thumbnail_state, thumbnail = found.thumbnail, beside = found.beside,
          media = coalesce(found.media, assets.media),
          bytes = coalesce((found.media->>'bytes')::bigint, assets.bytes),
          verified_at = CASE WHEN found.media IS NULL THEN assets.verified_at ELSE now() END
        FROM held JOIN found USING (id) WHERE assets.id = held.id AND assets.turn = found.turn
        RETURNING assets.id, assets.turn, assets.sync_id, found.began, found.told
      ), story AS (
        INSERT INTO happenings (asset_id, at, kind, sync_id, data) SELECT id, began, 'turn', sync_id, told FROM given
      )
      SELECT id, turn FROM given`.execute(on);
    const ended = new Set(rows.map(({ id, turn }) => `${turn} ${id}`));
    return ends.map(({ turn }) => ended.has(`${turn.turn} ${turn.assetId}`));
  }
  const endTogether = gathered((ends: { turn: Turn; done: Mirrored }[]) => endAll(ends));

  /** What an event of an asset is about: it, and who was in charge. */
  async function about({ assetId }: Turn, tx: Database): Promise<{ assetId: string; connectionId?: string }> {
    const row = await tx.selectFrom('assets').select('connectionId').where('id', '=', assetId).executeTakeFirst();
    return { assetId, ...(row?.connectionId && { connectionId: row.connectionId }) };
  }

  /** The last word on an asset, unless a listing has changed it since the turn began: then it is looked at again at once. */
  async function conclude(
    turn: Turn,
    state: 'unavailable' | 'failed',
    reason: string,
    on: Database = db,
  ): Promise<boolean> {
    const since = sql`revision = ${turn.revision}::int`;
    const values = {
      state: sql`CASE WHEN ${since} THEN ${state} ELSE 'pending' END`,
      reason,
      nextAt: sql`CASE WHEN ${since} THEN NULL ELSE now() END`,
      attempts: state === 'failed' ? sql`CASE WHEN ${since} THEN attempts + 1 ELSE 0 END` : 0,
      waits: 0,
      processingSince: null,
    };
    return give(turn, values, { outcome: state, reason }, on);
  }

  return {
    async get(id: string): Promise<Asset | undefined> {
      return db.selectFrom('assets').selectAll().where('id', '=', id).executeTakeFirst();
    },

    /** Those of these that are known. */
    async some(ids: string[]): Promise<Asset[]> {
      return ids.length === 0 ? [] : db.selectFrom('assets').selectAll().where('id', 'in', ids).execute();
    },

    dispatch: (room: Room) => dispatch(db, room),

    /**
     * Assets whose worker let its turn run out, and those whose job is said to be on the queue for `staleMs` although no
     * worker has had it: the worker was killed, or the job is lost.
     * Those that nobody may work on at present leave the queue instead.
     */
    async overdue(staleMs: number): Promise<QueuedAsset[]> {
      const { rows } = await sql<QueuedAsset & { queued: boolean }>`
        WITH late AS MATERIALIZED (
          SELECT id, sync_id, turn_until > queued_at AS lost FROM assets
          WHERE queued_at IS NOT NULL AND (turn_until IS NULL OR turn_until < now())
            AND (queued_at < turn_until OR queued_at < now() - ${staleMs} * interval '1 ms')
          ORDER BY queued_at LIMIT 1000 FOR UPDATE SKIP LOCKED
        ), told AS (
          INSERT INTO happenings (asset_id, kind, sync_id) SELECT id, 'lost', sync_id FROM late WHERE lost
        )
        UPDATE assets SET queued_at = CASE WHEN ${workable} THEN now() END FROM late WHERE assets.id = late.id
        RETURNING assets.id, state, turn, queued_at IS NOT NULL AS queued, ${traceparent}`.execute(db);
      return rows.filter((row) => row.queued);
    },

    /**
     * The next turn at an asset whose job came off the queue; undefined when there is nothing to do, or not by us.
     * What may not be worked on at present leaves the queue, and makes room. What was pending is on its way from here on.
     */
    async take(id: string, leaseMs: number): Promise<OwnedAsset | undefined> {
      return takeTogether({ id, leaseMs });
    },

    /** Keeps turns. Returns those that are still held; for the others the worker must stop. */
    async renew(turns: Turn[], leaseMs: number): Promise<Set<string>> {
      if (turns.length === 0) return new Set();
      // In the order of ids, as all that locks several assets: so nobody waits in a circle.
      const { rows } = await sql<{ id: string }>`
        WITH mine AS (
          SELECT a.id FROM assets a
          JOIN unnest(${turns.map((t) => t.assetId)}::text[], ${turns.map((t) => t.turn)}::int[]) AS held (id, turn)
            ON a.id = held.id AND a.turn = held.turn AND a.turn_until IS NOT NULL
          JOIN connections c ON c.id = a.connection_id AND c.status = 'active'
          ORDER BY a.id FOR UPDATE OF a)
        UPDATE assets SET turn_until = now() + ${leaseMs} * interval '1 ms'
        FROM mine WHERE assets.id = mine.id
        RETURNING assets.id`.execute(db);
      return new Set(rows.map((row) => row.id));
    },

    /** The transfer begins: of what was pending, it has. */
    async startTransfer(turn: Turn): Promise<boolean> {
      const { numUpdatedRows } = await db
        .updateTable('assets')
        .set({ state: 'transferring' })
        .where(inHand(turn))
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },

    /**
     * Another file is about to take the place of what is in the bucket: from here on the row says of neither that it is
     * there, and remembers `outdated`, the keys that one of them has.
     */
    async replace(turn: Turn, outdated: string[]): Promise<boolean> {
      const { numUpdatedRows } = await db
        .updateTable('assets')
        .set({
          recordKey: null,
          media: sql`media || '{"version": ""}'`,
          ...(outdated.length > 0 && { thumbnail: null, transcriptKeys: null, beside: '{}' as never }),
          outdated: sql`ARRAY(SELECT DISTINCT unnest(outdated || ${outdated}::text[]))`,
        })
        .where(inHand(turn))
        .executeTakeFirst();
      return numUpdatedRows > 0n;
    },

    /** The media is in the bucket and checked; a later failure of this turn need not fetch it again. */
    async saveMedia(turn: Turn, media: Media): Promise<boolean> {
      const values = mediaValues(media);
      // Most came in one stream: there are no parts to forget, and none can be added.
      const { numUpdatedRows } = await db
        .updateTable('assets')
        .set(values)
        .where(inHand(turn))
        .where('upload', 'is', null)
        .executeTakeFirst();
      return numUpdatedRows > 0n || setUpload(turn, null, values);
    },

    /** An upload in parts has begun, or what there was of one is gone; the parts of the one before are forgotten. */
    async saveUpload(turn: Turn, upload: UploadUnderWay | null): Promise<boolean> {
      return setUpload(turn, upload);
    },

    /** A part is stored and proven. */
    async savePart(turn: Turn, part: UploadPart): Promise<boolean> {
      const { numAffectedRows } = await sql`
        INSERT INTO upload_parts (asset_id, number, bytes, etag, crc32)
        SELECT id, ${part.number}, ${part.bytes}, ${part.etag}, ${part.crc32} FROM assets
        WHERE ${inHand(turn)} AND upload IS NOT NULL FOR SHARE
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
     * The record is written. A listing that saw another version since the turn began makes it pending again; one that saw
     * another name or tags, due for a new record.
     */
    async mirrored(turn: Turn, done: Mirrored): Promise<boolean> {
      if (!done.tell) return endTogether({ turn, done });
      return db.transaction().execute(async (tx) => {
        const [held] = await endAll([{ turn, done }], tx);
        if (held)
          await addEvent(tx, {
            kind: 'asset.mirrored',
            ...(await about(turn, tx)),
            data: { key: done.tell!.key, bytes: done.tell!.bytes },
          });
        return held!;
      });
    },

    /** Still transcoding: looked at again at `nextAt`. Spends no attempt. */
    async processing(turn: Turn, nextAt: Date): Promise<boolean> {
      return give(
        turn,
        {
          state: 'processing',
          reason: null,
          nextAt,
          waits: 0,
          processingSince: sql`coalesce(processing_since, now())`,
        },
        { outcome: 'processing', nextAt },
      );
    },

    /** The service has no file for it, or it does not exist any more. */
    async unavailable(turn: Turn, reason: string): Promise<boolean> {
      return conclude(turn, 'unavailable', reason);
    },

    /** Comes back at `nextAt`. `spent`: it was an attempt; `putOff`: it was none, and is counted by itself. */
    async again(
      turn: Turn,
      nextAt: Date,
      options: { spent?: boolean; putOff?: boolean; reason: string | null },
    ): Promise<boolean> {
      return give(
        turn,
        {
          state: sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`,
          nextAt,
          reason: options.reason,
          ...(options.spent && { attempts: sql`attempts + 1` }),
          ...(options.putOff && { waits: sql`waits + 1` }),
        },
        { outcome: 'again', reason: options.reason, nextAt },
      );
    },

    /** The settings leave it out. */
    async leaveOut(turn: Turn, rule: string, reason: string): Promise<boolean> {
      return give(
        turn,
        {
          state: 'pending',
          leftOut: rule,
          reason,
          nextAt: null,
          attempts: 0,
          waits: 0,
          processingSince: null,
        },
        { outcome: 'left out', reason },
      );
    },

    /** Another connection wants it, and this one does not. */
    async handOver(turn: Turn, connectionId: string): Promise<boolean> {
      return give(
        turn,
        {
          connectionId,
          state: sql`CASE state WHEN 'transferring' THEN 'pending' ELSE state END`,
          nextAt: sql`now()`,
        },
        { outcome: 'handed over' },
      );
    },

    async failed(turn: Turn, reason: string): Promise<boolean> {
      return db.transaction().execute(async (tx) => {
        const done = await conclude(turn, 'failed', reason, tx);
        if (done) await addEvent(tx, { kind: 'asset.failed', ...(await about(turn, tx)), data: { reason } });
        return done;
      });
    },

    /** The media is to be looked at again: another version, or none. */
    async startOver(turn: Turn): Promise<boolean> {
      return give(
        turn,
        { state: 'pending', nextAt: sql`now()`, attempts: 0, waits: 0, reason: null },
        { outcome: 'started over' },
      );
    },

    /** Transcript and thumbnail that are still missing are given up; the media stays as it is. */
    async giveUpArtefacts(turn: Turn, reason: string): Promise<boolean> {
      return give(
        turn,
        {
          nextAt: sql`CASE WHEN revision <> ${turn.revision}::int THEN now() END`,
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
        WHERE id = ${id} AND state <> 'gone' AND listed <> '{}' AND left_out IS NULL AND (turn_until IS NULL OR turn_until < now())
          AND (state <> 'mirrored' OR next_at IS NOT NULL OR transcript_state = 'gave_up' OR thumbnail_state = 'gave_up')
      `.execute(db);
      return (numAffectedRows ?? 0n) > 0n;
    },

    /** Up to `limit` of what has failed of a connection is due now, as on the first day. Returns how many. */
    async retryFailed(connectionId: string, limit: number): Promise<number> {
      const { numAffectedRows } = await sql`
        WITH work AS (
          SELECT id FROM assets WHERE connection_id = ${connectionId} AND state = 'failed' AND listed <> '{}'
            AND (turn_until IS NULL OR turn_until < now())
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

    /** A page of assets by id, each with whether its connection can read it at present. */
    async search(filter: {
      id?: string | undefined;
      connectionId?: string | undefined;
      companyId?: string | undefined;
      projectId?: string | undefined;
      state?: AssetState | undefined;
      type?: string | undefined;
      leftOut?: boolean | undefined;
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
        filter.leftOut === true && sql`assets.left_out IS NOT NULL`,
        filter.leftOut === false && sql`assets.left_out IS NULL`,
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
