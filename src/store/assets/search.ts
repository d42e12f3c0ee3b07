import { type RawBuilder, sql } from 'kysely';
import type { Asset, AssetState, Database } from '../database/schema.ts';

/** A page of assets by id, each with whether its connection can read it at present. */
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
