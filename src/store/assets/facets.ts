import { type RawBuilder, sql } from 'kysely';
import type { Database } from '../database/schema.ts';
import { type AssetFilter, all, conditionsOf } from './search.ts';

/** The facets by which assets are counted. */
export const facetNames = ['state', 'type', 'mimeType', 'tag', 'projectId', 'companyId', 'connectionId'] as const;
type FacetName = (typeof facetNames)[number];

/** A value of a facet, and how many of the matching assets have it. `name`: for people. */
export interface FacetCount {
  facet: FacetName;
  value: string;
  name: string | null;
  count: number;
}

/** Values of a facet in an answer: those of the most assets. */
const mostValues = 20;

/**
 * Counts the matching assets, and their most frequent values of each facet. At most `most` assets are counted, so that it
 * takes about as long in a large library.
 */
export async function facets(
  db: Database,
  { most, ...filter }: AssetFilter & { most: number },
): Promise<{ matching: number; counts: FacetCount[] }> {
  const conditions = conditionsOf(filter);
  const where = all([...conditions.assets, ...conditions.facets]);
  const { rows } = await sql<{ facet: FacetName | 'all'; value: string; name: string | null; count: number }>`
    WITH matching AS MATERIALIZED (
      SELECT CASE WHEN assets.skipped THEN 'skipped' ELSE assets.state END AS state, assets.connection_id,
        assets.company_id, asset_facets.project_id, asset_facets.asset_type AS type, asset_facets.mime_type, asset_facets.tags
      FROM asset_facets JOIN assets USING (id) WHERE ${where} LIMIT ${most}),
    counted (facet, value, count) AS (
      SELECT 'all', '', count(*) FROM matching
      ${sql.join(
        facetNames.map((facet) => sql`UNION ALL (${frequent(facet)})`),
        sql` `,
      )})
    SELECT facet, value, count::int AS count, CASE facet
      WHEN 'projectId' THEN (
        SELECT listed->>'projectName' FROM asset_facets JOIN assets USING (id) WHERE asset_facets.project_id = value LIMIT 1)
      WHEN 'companyId' THEN (SELECT companies.name FROM companies WHERE companies.id = value)
      WHEN 'connectionId' THEN (SELECT user_name FROM connections WHERE connections.id = value) END AS name
    FROM counted`.execute(db);
  const counts = rows.filter((row): row is FacetCount => row.facet !== 'all');
  return { matching: rows.find(({ facet }) => facet === 'all')!.count, counts };
}

/** The most frequent values of a facet among the matching assets. */
function frequent(facet: FacetName): RawBuilder<unknown> {
  const values =
    facet === 'tag'
      ? sql`SELECT unnest(tags) AS value FROM matching`
      : sql`SELECT ${sql.ref(facet)} AS value FROM matching WHERE ${sql.ref(facet)} IS NOT NULL`;
  return sql`
    SELECT ${facet}::text, value, count(*) FROM (${values}) AS each GROUP BY value ORDER BY count(*) DESC, value LIMIT ${mostValues}`;
}
