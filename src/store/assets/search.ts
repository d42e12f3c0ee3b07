import { type RawBuilder, sql } from 'kysely';
import type { Asset, AssetState, Database } from '../database/schema.ts';

/** Conditions of a search; all must match. */
export interface AssetFilter {
  ids?: string[] | undefined;
  connectionId?: string | undefined;
  /** Any of these. */
  connectionIds?: string[] | undefined;
  companyId?: string | undefined;
  projectId?: string | undefined;
  state?: AssetState | undefined;
  type?: string | undefined;
  /** All of these. */
  tag?: string[] | undefined;
  /** `image/*` means all that begin with `image/`. */
  mimeType?: string | undefined;
  /** Upload dates in epoch milliseconds: from, and before. */
  uploadedFrom?: number | undefined;
  uploadedBefore?: number | undefined;
  /** Declared sizes in bytes, both included. */
  minSize?: number | undefined;
  maxSize?: number | undefined;
  skipped?: boolean | undefined;
  /** Part of the name, or the id. */
  q?: string | undefined;
  /** Words of its transcript, as for `websearch_to_tsquery`. */
  said?: string | undefined;
}

export const sortKeys = ['id', 'name', 'uploadDate', 'size'] as const;
export type SortKey = (typeof sortKeys)[number];

export interface Order {
  by: SortKey;
  descending: boolean;
}

/** The columns of `asset_facets` by which assets are sorted, as its indexes have them. */
const sortColumns: Record<SortKey, RawBuilder<unknown>> = {
  id: sql`asset_facets.id`,
  name: sql`left(coalesce(asset_facets.name, ''), 100) COLLATE "C"`,
  uploadDate: sql`coalesce(asset_facets.upload_date, 0)`,
  size: sql`coalesce(asset_facets.size, 0)`,
};

export type Found = Asset & { readable: boolean; sortKey: string | number };

/** A page of assets. `readable`: their connection can read them now. `after`: sort key and id of the last one before it. */
export async function search(
  db: Database,
  {
    after,
    limit,
    order = { by: 'id', descending: false },
    ...filter
  }: AssetFilter & { after?: [string | number, string] | undefined; limit: number; order?: Order },
): Promise<Found[]> {
  const direction = order.descending ? sql`DESC` : sql`ASC`;
  const page = sql`ORDER BY sort_key ${direction}, id ${direction} LIMIT ${limit}`;
  const { rows } = await sql<Found>`
    WITH found AS MATERIALIZED (${candidates(filter, order, after, page)})
    SELECT assets.*, found.sort_key, EXISTS (
      SELECT 1 FROM access a JOIN connections c ON c.id = a.connection_id
      WHERE a.connection_id = assets.connection_id AND a.company_id = assets.company_id AND a.lost_at IS NULL
        AND c.status <> 'disconnected') AS readable
    FROM found JOIN assets USING (id) ${page}`.execute(db);
  return rows;
}

/** Up to this many matching rows are all read and sorted. For a rare tag, the planner would not do that: it expects more rows. */
const few = 2000;

/** Ids and sort keys of a page. */
function candidates(
  filter: AssetFilter,
  { by, descending }: Order,
  after: [string | number, string] | undefined,
  page: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const { assets, facets } = conditionsOf(filter);
  const comparison = descending ? sql`<` : sql`>`;
  const beyond = (column: RawBuilder<unknown>, id: RawBuilder<unknown>) =>
    after === undefined ? [] : [sql`(${column}, ${id}) ${comparison} (${after[0]}, ${after[1]})`];
  // Each asset has one row in `asset_facets`, so only one of the tables need be read for many searches.
  if (by === 'id' && facets.length === 0) {
    const next = after === undefined ? [] : [sql`id ${comparison} ${after[1]}`];
    return sql`SELECT id, id AS sort_key FROM assets WHERE ${all([...next, ...assets])} ${page}`;
  }
  const column = sortColumns[by];
  const join = assets.length > 0 ? sql`JOIN assets USING (id)` : sql``;
  const id = sql`asset_facets.id`;
  const walk = (more: RawBuilder<unknown>[]) => sql`
    SELECT asset_facets.id, ${column} AS sort_key FROM asset_facets ${join}
    WHERE ${all([...beyond(column, id), ...facets, ...assets, ...more])} ${page}`;
  if (facets.length === 0) return walk([]);
  return sql`
    WITH few AS MATERIALIZED (
      SELECT id, ${column} AS sort_key FROM asset_facets WHERE ${all(facets)} LIMIT ${few + 1})
    (SELECT few.id, sort_key FROM few ${join}
      WHERE ${all([sql`(SELECT count(*) FROM few) <= ${few}`, ...beyond(sql`sort_key`, sql`few.id`), ...assets])} ${page})
    UNION ALL (${walk([sql`(SELECT count(*) FROM few) > ${few}`])})`;
}

/** The conditions on columns of `assets`, and of `asset_facets`. */
export function conditionsOf(filter: AssetFilter) {
  const given = (conditions: (RawBuilder<unknown> | false)[]) => conditions.filter((condition) => condition !== false);
  const assets = given([
    filter.ids !== undefined && sql`assets.id = ANY(${filter.ids}::text[])`,
    filter.connectionId !== undefined && sql`assets.connection_id = ${filter.connectionId}`,
    filter.connectionIds !== undefined && sql`assets.connection_id = ANY(${filter.connectionIds}::text[])`,
    filter.companyId !== undefined && sql`assets.company_id = ${filter.companyId}`,
    filter.state !== undefined && sql`assets.state = ${filter.state}`,
    // Lets the planner use the index on `mirrored_at` while few assets are mirrored.
    filter.state === 'mirrored' && sql`assets.mirrored_at IS NOT NULL`,
    filter.skipped === true && sql`assets.skipped`,
    filter.skipped === false && sql`NOT assets.skipped`,
  ]);
  const facets = given([
    filter.projectId !== undefined && sql`asset_facets.project_id = ${filter.projectId}`,
    filter.type !== undefined && sql`asset_facets.asset_type = ${filter.type}`,
    filter.tag !== undefined &&
      sql`asset_facets.tags @> ${filter.tag.map((tag) => [...tag].slice(0, 200).join(''))}::text[]`,
    filter.mimeType !== undefined && mimeTypeIs(filter.mimeType),
    filter.uploadedFrom !== undefined && sql`asset_facets.upload_date >= ${filter.uploadedFrom}`,
    filter.uploadedBefore !== undefined && sql`asset_facets.upload_date < ${filter.uploadedBefore}`,
    filter.minSize !== undefined && sql`asset_facets.size >= ${filter.minSize}`,
    filter.maxSize !== undefined && sql`asset_facets.size <= ${filter.maxSize}`,
    filter.q !== undefined && sql`(${namedLike(filter.q)} OR asset_facets.id = ${filter.q})`,
    filter.said !== undefined && sql`asset_facets.id IN (SELECT id FROM assets_that_say(${filter.said}) AS found (id))`,
  ]);
  return { assets, facets };
}

export const all = (conditions: RawBuilder<unknown>[]) => sql.join([sql`true`, ...conditions], sql` AND `);

const literal = (text: string) => text.replace(/[\\%_]/g, '\\$&');

const mimeTypeIs = (mimeType: string) =>
  mimeType.endsWith('/*')
    ? sql`asset_facets.mime_type LIKE ${`${literal(mimeType.slice(0, -1))}%`}`
    : sql`asset_facets.mime_type = ${mimeType}`;

/** Characters that begin a new word in a file name. */
const beforeWords = [' ', '_', '-', '.', '(', '+'];

/**
 * Names that contain this, in any case. The trigram index cannot find one or two letters or digits, except at the beginning
 * of a word, so these are searched there only.
 */
function namedLike(part: string): RawBuilder<unknown> {
  const patterns = /^[a-z\d]{1,2}$/i.test(part)
    ? [`${part}%`, ...beforeWords.map((before) => `%${literal(before)}${part}%`)]
    : [`%${literal(part)}%`];
  return sql`(${sql.join(
    patterns.map((pattern) => sql`asset_facets.name LIKE lower(${pattern})`),
    sql` OR `,
  )})`;
}
