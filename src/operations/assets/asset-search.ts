import { z } from 'zod';
import { type FacetCount, facetNames } from '../../store/assets/facets.ts';
import type { AssetFilter, Order, SortKey } from '../../store/assets/search.ts';
import { assetStates } from '../../store/counts/states.ts';
import type { Hit } from '../../store/transcripts/transcript-hits.ts';
import { existingConnection } from '../connections/connections.ts';
import { tagFilter, tagsIn } from '../connections/tags.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, text } from '../fields.ts';
import { flag, givenCursor, nextCursor, pageOf, positionOf, rowsOfPage } from '../pagination.ts';
import { Refused } from '../refused.ts';
import { assetSummary, factsOf } from './assets.ts';

/** A day begins at midnight, UTC. */
export const moment = z
  .union(
    [z.iso.date(), z.iso.datetime({ offset: true })],
    'expected a date, such as 2026-01-31 or 2026-01-31T12:00:00Z',
  )
  .optional();
const sizeError = 'expected a number of bytes';
const size = z.coerce
  .number({ error: sizeError })
  .int({ error: sizeError })
  .min(0, { error: sizeError })
  .max(Number.MAX_SAFE_INTEGER, { error: sizeError })
  .optional();

const conditions = {
  connectionId: text.optional(),
  connectionTag: tagFilter.describe('A tag of the connection, such as `client=acme`. May be repeated: all must match.'),
  companyId: text.optional(),
  projectId: text.optional(),
  state: z.enum(assetStates).optional(),
  type: text.optional(),
  tag: z
    .union([text.transform((tag) => [tag]), z.array(text).max(20)])
    .optional()
    .describe('A tag of the library. May be repeated: all must match.'),
  mimeType: text.optional().describe('Such as `image/png`, or `image/*`.'),
  uploadedFrom: moment.describe('A date, or a time with its zone.'),
  uploadedBefore: moment,
  minSize: size.describe('In bytes, as the library declares it.'),
  maxSize: size,
  skipped: flag.describe('Assets skipped by filters. Without it, `pending` does not include them.'),
  q: text
    .max(200)
    .optional()
    .describe('Part of the name, ignoring case, or an id. One or two letters match only the beginning of a word.'),
  said: text
    .max(500)
    // PostgreSQL refuses many `-` in a row.
    .transform((words) => words.replace(/-+(?![\p{L}\p{N}"])/gu, ' '))
    .optional()
    .describe(
      'Words of the transcript, such as `budget "next year" -draft` or `car OR truck`. Needs SEARCH_TRANSCRIPTS.',
    ),
};

const ofTexts = ['id', '-id', 'name', '-name'] as const;
const ofNumbers = ['uploadDate', '-uploadDate', 'size', '-size'] as const;
const orders = [...ofTexts, ...ofNumbers] as const;
export const assetQuery = z.strictObject({
  ...conditions,
  sort: z.enum(orders).default('id').describe('A leading `-` means descending order.'),
  cursor: givenCursor,
  limit: rowsOfPage(50),
});
const hit = z.object({
  startMs: count.describe('When this line starts.'),
  text: z.string(),
  marks: z
    .array(z.tuple([count, count]))
    .describe('Where the matching words begin and end in `text`, in UTF-16 code units as in JavaScript.'),
});
/** Lines of an asset in an answer. */
const mostHits = 3;
const foundAsset = assetSummary
  .extend({ said: z.array(hit).max(mostHits).optional().describe('With `said`: the first lines that match.') })
  .meta({ id: 'FoundAsset' });
export const assetList = z.object({ assets: z.array(foundAsset), nextCursor }).meta({ id: 'AssetList' });

export const facetQuery = z.strictObject(conditions);
export type FacetQuery = z.input<typeof facetQuery>;

/** Counting this many takes less than 0.2 s. */
const mostCounted = 5_000;

const facetValues = z
  .array(
    z.object({
      value: z.string(),
      name: z.string().nullable().describe('The name of the company, project or user; null: none, or unknown.'),
      count,
    }),
  )
  .describe('The 20 most frequent values.');
export const facetList = z
  .object({
    matching: count,
    isComplete: z
      .boolean()
      .describe(`false: more than ${mostCounted} assets match, and only ${mostCounted} of them were counted.`),
    facets: z.object(
      Object.fromEntries(facetNames.map((name) => [name, facetValues])) as Record<
        FacetCount['facet'],
        typeof facetValues
      >,
    ),
  })
  .meta({ id: 'FacetList' });

/** The conditions of a query for the database. */
export async function filterFrom(
  { connections }: Pick<OperationsDeps['store'], 'connections'>,
  query: FacetQuery,
): Promise<AssetFilter> {
  const { uploadedFrom, uploadedBefore, connectionTag, ...filter } = facetQuery.parse(query);
  const tags = tagsIn(connectionTag);
  return {
    ...(tags.length > 0 && { connectionIds: await connections.withTags(tags) }),
    ...(filter.state === 'pending' ? { skipped: false } : {}),
    ...filter,
    uploadedFrom: msOf(uploadedFrom),
    uploadedBefore: msOf(uploadedBefore),
  };
}

type Deps = Pick<OperationsDeps, 'store' | 'transcripts'>;

/** As `filterFrom`, after checks. @throws Refused 404 for an unknown connection; 409 if transcripts are not searched */
export async function filterOf({ store, transcripts }: Deps, query: FacetQuery): Promise<AssetFilter> {
  if (query.said !== undefined && !transcripts.search) {
    const remedy = 'Set SEARCH_TRANSCRIPTS=true for all processes, and restart them.';
    throw new Refused(409, 'transcripts_not_searched', `Transcript search is off. ${remedy}`);
  }
  if (query.connectionId !== undefined) await existingConnection(store, query.connectionId);
  return filterFrom(store, query);
}

export function assetSearchOperations(deps: Deps) {
  const { store } = deps;
  return {
    /** A page of assets. */
    async assets(query: z.input<typeof assetQuery>) {
      const { cursor, limit, sort, ...filter } = assetQuery.parse(query);
      const position = positionOf(cursor, cursorPosition);
      if (position && position[0] !== sort) {
        throw new Refused(
          400,
          'invalid_cursor',
          `This cursor is of a list that is sorted by ${position[0]}. Use it with the same sort, or begin without a cursor.`,
        );
      }
      const after: [string | number, string] | undefined = position && [position[1], position[2]];
      const found = await store.assets.search({
        ...(await filterOf(deps, filter)),
        order: orderOf(sort),
        after,
        limit: limit + 1,
      });
      const page = pageOf(found, limit, (last) => [sort, last.sortKey, last.id]);
      return { assets: await withHits(store, page.rows.map(factsOf), filter.said), nextCursor: page.nextCursor };
    },

    /** Counts the matching assets by facet. */
    async facets(query: FacetQuery) {
      const filter = await filterOf(deps, facetQuery.parse(query));
      const { matching, counts } = await store.assets.facets({ ...filter, most: mostCounted + 1 });
      const facets = Object.fromEntries(
        facetNames.map((facet) => [
          facet,
          counts.filter((one) => one.facet === facet).map(({ value, name, count }) => ({ value, name, count })),
        ]),
      ) as z.output<typeof facetList>['facets'];
      return { matching: Math.min(matching, mostCounted), isComplete: matching <= mostCounted, facets };
    },
  };
}

/** Adds to each asset the lines in which this was said. */
async function withHits<T extends { id: string }>(
  store: OperationsDeps['store'],
  assets: T[],
  said: string | undefined,
): Promise<(T & { said?: Hit[] })[]> {
  if (said === undefined) return assets;
  const assetIds = assets.map(({ id }) => id);
  const found = Map.groupBy(await store.transcripts.hits({ said, assetIds, each: mostHits }), ({ assetId }) => assetId);
  return assets.map((asset) => {
    const lines = new Map((found.get(asset.id) ?? []).map(({ assetId: _, ...line }) => [line.startMs, line]));
    return { ...asset, said: [...lines.values()].sort((a, b) => a.startMs - b.startMs).slice(0, mostHits) };
  });
}

const msOf = (at: string | undefined) => (at === undefined ? undefined : Date.parse(at));

/** The order, and sort key and id of the last asset before. */
const cursorPosition = z.union([
  z.tuple([z.enum(ofNumbers), z.int(), text]),
  z.tuple([z.enum(ofTexts), z.union([text, z.literal('')]), text]),
]);

const orderOf = (sort: (typeof orders)[number]): Order => ({
  by: sort.replace('-', '') as SortKey,
  descending: sort.startsWith('-'),
});
