import { sql } from 'kysely';
import type { Asset, AssetState, Database, ObjectKind, Remedy } from '../database/schema.ts';

const columns = [
  'id',
  'connectionId',
  'companyId',
  'projectId',
  'name',
  'uploadDate',
  'state',
  'reason',
  'skipped',
  'revision',
  'nextAt',
  'lease',
  'media',
  'recordKey',
  'mirroredAt',
  'settledAt',
  'transcriptState',
  'transcriptKeys',
  'thumbnailState',
  'thumbnail',
  'sidecarFiles',
  'verifiedAt',
  'superseded',
] as const satisfies (keyof Asset)[];

/** What the records say about an asset and its objects, without what the API said of it. */
export type AssetContents = Pick<Asset, (typeof columns)[number]> & {
  /** Whether a worker has it, or is about to. */
  isMoving: boolean;
};

/** States of what is, or was, to be mirrored; what is gone is not. */
const notMirrored = ['pending', 'processing', 'transferring', 'unavailable', 'failed'] satisfies AssetState[];

/** How the key of the media is written in the index `assets_by_key`: byte by byte, as stores list. */
const mediaKey = sql<string>`(media->>'key') COLLATE "C"`;

/** What should be in the bucket, as the records have it: in pages, so that a million assets need no memory. */
export function contentsRecords(db: Database) {
  const isMoving = sql<boolean>`(queued_at IS NOT NULL OR coalesce(lease_until > now(), false))`;
  const assets = () => db.selectFrom('assets').select(columns).select(isMoving.as('isMoving'));
  return {
    async get(id: string): Promise<AssetContents | undefined> {
      return assets().where('id', '=', id).executeTakeFirst();
    },

    async some(ids: string[]): Promise<AssetContents[]> {
      if (ids.length === 0) return [];
      return assets().where('id', 'in', ids).execute();
    },

    /** Assets that have, or had, a media file in the bucket: a page of those behind `after`, in the order of its key's bytes. */
    async byKey(page: { after: string; limit: number; connectionId?: string | undefined }): Promise<AssetContents[]> {
      return assets()
        .where('media', 'is not', null)
        .where(mediaKey, '>', page.after)
        .$if(page.connectionId !== undefined, (query) => query.where('connectionId', '=', page.connectionId!))
        .orderBy(mediaKey)
        .limit(page.limit)
        .execute();
    },

    /** Assets whose media lies at one of these keys, in the order of its bytes. */
    async atKeys(keys: string[], connectionId?: string): Promise<AssetContents[]> {
      return assets()
        .where('media', 'is not', null)
        .where(sql<boolean>`${mediaKey} = ANY(${keys}::text[])`)
        .$if(connectionId !== undefined, (query) => query.where('connectionId', '=', connectionId!))
        .orderBy(mediaKey)
        .execute();
    },

    /** Assets that a worker has, or is about to have: no more than there are slots on the queue. */
    async queued(): Promise<AssetContents[]> {
      return assets().where('queuedAt', 'is not', null).execute();
    },

    /** A page of all assets, by id. */
    async byId(page: { after: string; limit: number }): Promise<AssetContents[]> {
      return assets().where('id', '>', page.after).orderBy('id').limit(page.limit).execute();
    },

    /**
     * Of the next `limit` assets by id those that are not mirrored, and those that have settled since then, each as it is at
     * one moment; and the last that was looked at. Undefined: there are none.
     */
    async openSince(page: {
      after: string;
      limit: number;
      connectionId?: string | undefined;
      since: Date;
    }): Promise<{ rows: AssetContents[]; last: string } | undefined> {
      const { after, connectionId } = page;
      const next = db
        .selectFrom('assets')
        .select('id')
        .where('id', '>', after)
        .$if(connectionId !== undefined, (query) => query.where('connectionId', '=', connectionId!))
        .orderBy('id')
        .limit(page.limit);
      const { last } = await db
        .selectFrom(next.as('next'))
        .select(({ fn }) => fn.max<string | null>('id').as('last'))
        .executeTakeFirstOrThrow();
      if (last === null) return undefined;
      const rows = await assets()
        .where('id', '>', after)
        .where('id', '<=', last)
        .where((e) => e.or([e('state', 'in', notMirrored), e('settledAt', '>=', page.since)]))
        .$if(connectionId !== undefined, (query) => query.where('connectionId', '=', connectionId!))
        .orderBy('id')
        .execute();
      return { rows, last };
    },

    /** How many assets have, or had, a media file in the bucket. */
    async count(connectionId?: string): Promise<number> {
      const { count } = await db
        .selectFrom('assets')
        .select(({ fn }) => fn.countAll<number>().as('count'))
        .where('media', 'is not', null)
        .$if(connectionId !== undefined, (query) => query.where('connectionId', '=', connectionId!))
        .executeTakeFirstOrThrow();
      return count;
    },

    /** Their media was read, and is what was stored: unless it has changed since. */
    async verified(seen: { id: string; lease: number }[]): Promise<void> {
      if (seen.length === 0) return;
      // In the order of ids, as all that locks several assets: so nobody waits in a circle.
      await sql`
        WITH same AS (
          SELECT a.id FROM assets a
          JOIN unnest(${seen.map(({ id }) => id)}::text[], ${seen.map(({ lease }) => lease)}::int[]) AS seen (id, lease)
            ON a.id = seen.id AND a.lease = seen.lease
          ORDER BY a.id FOR UPDATE OF a)
        UPDATE assets SET verified_at = now() FROM same WHERE assets.id = same.id`.execute(db);
    },

    /** The store calls these objects otherwise than it did, as after a copy, and their content is right: it is read once. */
    async copied(objects: { id: string; lease: number; key: string; etag: string }[]): Promise<void> {
      for (const { id, lease, key, etag } of objects) {
        await sql`
          UPDATE assets SET
            media = CASE WHEN media->>'key' = ${key} THEN jsonb_set(media, '{etag}', to_jsonb(${etag}::text)) ELSE media END,
            sidecar_files = CASE WHEN sidecar_files ? ${key}
              THEN jsonb_set(sidecar_files, ARRAY[${key}::text, 'etag'], to_jsonb(${etag}::text)) ELSE sidecar_files END
          WHERE id = ${id} AND lease = ${lease}`.execute(db);
      }
    },

    /**
     * Has what is missing or wrong in the bucket made again. Of what is on its way nothing is changed: false. Only `check` and
     * `fetch` may lead to another download; the rest is written again as it is.
     */
    async mend(id: string, what: { kind: ObjectKind; remedy: Remedy }[]): Promise<boolean> {
      const has = (kind: ObjectKind) => what.some((it) => it.kind === kind);
      const fetch = what.some((it) => it.remedy === 'fetch');
      const mended = db
        .updateTable('assets')
        .set({
          nextAt: sql`now()`,
          attempts: 0,
          waits: 0,
          reason: null,
          ...(has('media') && { state: 'pending' as const }),
          // Another version than any: so nothing takes what is there for the right one.
          ...(fetch && { media: sql`media || '{"version": ""}'` }),
          ...(has('record') && !has('media') && { recordKey: null }),
          ...(has('transcript') && { transcriptState: 'pending' as const, transcriptDeadline: null }),
          ...(has('thumbnail') && { thumbnailState: 'pending' as const }),
        })
        .where('id', '=', id)
        .where('state', '=', 'mirrored')
        .where('queuedAt', 'is', null)
        .where((e) => e.or([e('leaseUntil', 'is', null), e('leaseUntil', '<', sql<Date>`now()`)]))
        .returning(['id', 'syncId']);
      const told = JSON.stringify({ objects: what.map(({ kind }) => kind) });
      const { numAffectedRows } = await sql`
        WITH mended AS (${mended})
        INSERT INTO asset_history (asset_id, kind, sync_id, data)
        SELECT id, 'repaired', sync_id, ${told}::jsonb FROM mended`.execute(db);
      return (numAffectedRows ?? 0n) > 0n;
    },
  };
}
