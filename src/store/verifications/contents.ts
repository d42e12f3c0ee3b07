import { sql } from 'kysely';
import { isStranded } from '../assets/leases.ts';
import type { Asset, AssetState, Database } from '../database/schema.ts';
import { protectedByHold } from '../removals/holds.ts';

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
  'goneAt',
  'settledAt',
  'transcriptState',
  'transcriptKeys',
  'thumbnailState',
  'thumbnail',
  'sidecarFiles',
  'verifiedAt',
  'superseded',
] as const satisfies (keyof Asset)[];

/** The database's data about an asset and its objects, without the answers of the API. */
export type AssetContents = Pick<Asset, (typeof columns)[number]> & {
  /** The asset is queued or leased. */
  isMoving: boolean;
  /** The asset is pending, and no connection can read its company. */
  hasNoReader: boolean;
};

const notMirrored = ['pending', 'processing', 'transferring', 'unavailable', 'failed'] satisfies AssetState[];

/** Exactly as in the index `assets_by_key`. Sorted byte by byte, as object stores list keys. */
const mediaKey = sql<string>`(media->>'key') COLLATE "C"`;

const isMoving = sql<boolean>`(queued_at IS NOT NULL OR coalesce(lease_until > now(), false))`;

const hasNoReader = sql<boolean>`(state = 'pending' AND ${isStranded})`;

/** With `connectionId`, only the assets of this connection. */
const assets = (db: Database, connectionId?: string) =>
  db
    .selectFrom('assets as a')
    .select(columns)
    .select([isMoving.as('isMoving'), hasNoReader.as('hasNoReader')])
    .$if(connectionId !== undefined, (query) => query.where('connectionId', '=', connectionId!));

export async function get(db: Database, id: string): Promise<AssetContents | undefined> {
  return assets(db).where('id', '=', id).executeTakeFirst();
}

export async function withIds(db: Database, ids: string[]): Promise<AssetContents[]> {
  if (ids.length === 0) return [];
  return assets(db).where('id', 'in', ids).execute();
}

/** A page of assets that have, or had, media in the bucket, in the order of the media's key, after `after`. */
export async function byKey(
  db: Database,
  page: { after: string; limit: number; connectionId?: string | undefined },
): Promise<AssetContents[]> {
  return assets(db, page.connectionId)
    .where('media', 'is not', null)
    .where(mediaKey, '>', page.after)
    .orderBy(mediaKey)
    .limit(page.limit)
    .execute();
}

/** Assets whose media is at one of these keys, by key. */
export async function atKeys(db: Database, keys: string[], connectionId?: string): Promise<AssetContents[]> {
  return assets(db, connectionId)
    .where('media', 'is not', null)
    .where(sql<boolean>`${mediaKey} = ANY(${keys}::text[])`)
    .orderBy(mediaKey)
    .execute();
}

/** Queued assets: no more than there are slots. */
export async function queued(db: Database): Promise<AssetContents[]> {
  return assets(db).where('queuedAt', 'is not', null).execute();
}

/** A page of all assets, by id. */
export async function byId(db: Database, page: { after: string; limit: number }): Promise<AssetContents[]> {
  return assets(db).where('id', '>', page.after).orderBy('id').limit(page.limit).execute();
}

/** Fields of the library's answers, which the library may fill with anything. */
const libraryFields = ['projectName', 'mimeType', 'tags', 'duration', 'width', 'height'] as const;

export type DescribedContents = Awaited<ReturnType<typeof describedById>>[number];

/** A page of all assets, by id, with what the library says about them. */
export async function describedById(db: Database, page: { after: string; limit: number }) {
  return assets(db)
    .select(['assetType', 'size'])
    .select(sql<boolean>`a.gone_at IS NOT NULL AND ${protectedByHold}`.as('isProtected'))
    .select(sql<string>`(SELECT c.name FROM companies c WHERE c.id = a.company_id)`.as('companyName'))
    .select(libraryFields.map((field) => sql<unknown>`coalesce(detail, listed)->${sql.lit(field)}`.as(field)))
    .where('id', '>', page.after)
    .orderBy('id')
    .limit(page.limit)
    .execute();
}

/**
 * Checks the next `limit` assets by id. Returns those that are not mirrored or were settled after `since`. `last`: the id of
 * the last checked asset. Undefined: there are no more.
 */
export async function openSince(
  db: Database,
  page: { after: string; limit: number; connectionId?: string | undefined; since: Date },
): Promise<{ rows: AssetContents[]; last: string } | undefined> {
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
  const rows = await assets(db, connectionId)
    .where('id', '>', after)
    .where('id', '<=', last)
    .where((e) => e.or([e('state', 'in', notMirrored), e('settledAt', '>=', page.since)]))
    .orderBy('id')
    .execute();
  return { rows, last };
}

/** How many assets have, or had, media in the bucket. */
export async function count(db: Database, connectionId?: string): Promise<number> {
  const { count } = await db
    .selectFrom('assets')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('media', 'is not', null)
    .$if(connectionId !== undefined, (query) => query.where('connectionId', '=', connectionId!))
    .executeTakeFirstOrThrow();
  return count;
}
