import { type RawBuilder, sql } from 'kysely';
import type { Asset, AssetState, Database } from '../database/schema.ts';

/** A page of assets by id. `readable`: their connection can read them now. */
export async function search(
  db: Database,
  filter: {
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
  },
): Promise<(Asset & { readable: boolean })[]> {
  const conditions = [
    filter.id !== undefined && sql`assets.id = ${filter.id}`,
    filter.connectionId !== undefined && sql`assets.connection_id = ${filter.connectionId}`,
    filter.companyId !== undefined && sql`assets.company_id = ${filter.companyId}`,
    filter.state !== undefined && sql`assets.state = ${filter.state}`,
    // Lets the planner use the index on `mirrored_at` while few assets are mirrored.
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
  // Each asset has one row in `asset_facets`, so a search by facets alone need not read the assets.
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
}

/** Characters that begin a new word in a file name. */
const beforeWords = [' ', '_', '-', '.', '(', '+'];

/**
 * Names that contain this, in any case. The trigram index cannot find one or two letters or digits, except at the beginning
 * of a word, so these are searched there only.
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
