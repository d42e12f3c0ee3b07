import { setTimeout as sleep } from 'node:timers/promises';
import { Disconnected, RetryLater, reasonOf } from '../errors.ts';
import type { FilterDefaults } from '../filters/apply-filters.ts';
import { type Filters, filtersOf, skippingRule, skipsCompany } from '../filters/filters.ts';
import type { Access } from '../pacing/with-token.ts';
import type { AssetPage, LibraryClient } from '../source/client.ts';
import { storable } from '../source/schemas.ts';
import type { Asset, Connection } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import type { ListedAsset } from '../store/syncs/record-page.ts';
import { decide } from './decide.ts';
import { doubtfulEnd, followCursors } from './follow-cursors.ts';
import { listedOn } from './listed-asset.ts';

export interface PlanDeps {
  store: Store;
  client: LibraryClient;
  withToken: Access;
  filters: FilterDefaults;
  /** Whether transcripts are kept at all. */
  transcripts: boolean;
  /** Whether thumbnails are. */
  thumbnails: boolean;
}

/**
 * What a full sync would make of a listed asset. Fetched would be: `new`, uploaded since the mark; `missing` in the records
 * although it is older; `changed`, another file than the one in the bucket; `waiting`, known and not in the bucket yet.
 */
export const planKinds = [
  'new',
  'missing',
  'changed',
  'waiting',
  /** Its record is written anew, or a transcript is looked for; the media is not fetched. */
  'record',
  'same',
  /** Still transcoding. */
  'processing',
  'unavailable',
  'skipped',
  /** Breaks the API's schema. */
  'unreadable',
] as const;
export type PlanKind = (typeof planKinds)[number];

export const fetched: readonly PlanKind[] = ['new', 'missing', 'changed', 'waiting'];

/** Assets, and the bytes of those whose size the service says. */
export interface Amount {
  assets: number;
  bytes: number;
}
export interface PlanRow extends Amount {
  companyId: string;
  companyName: string;
  type: string | null;
  kind: PlanKind;
}

export interface Planned {
  /** Pages and assets that were listed. */
  pages: number;
  listed: number;
  rows: PlanRow[];
  /** Fetched ones whose size nobody says. */
  sizeUnknown: number;
  /** What could not be listed, and why. */
  problems: string[];
  /** Companies that are skipped as a whole, and so not listed. */
  skippedCompanies: string[];
}

export interface PlanProgress {
  connectionId: string;
  companyId: string | null;
  pages: number;
  listed: number;
  /** The service asks to wait until then (ISO 8601). */
  waitsUntil: string | null;
}

/** So many types of a company are told apart. */
const mostTypes = 100;
const otherTypes = 'others';

/**
 * Lists what these connections can read, as a full sync does, at their adaptiveLimit, and compares it with the records. Nothing is
 * written and no media is asked for. One page is held at a time. A company that several of them read is listed once, and
 * what one of them wants of it counts as wanted.
 */
export async function plan(
  deps: PlanDeps,
  connections: Connection[],
  options: { signal: AbortSignal; report: (progress: PlanProgress) => void },
): Promise<Planned> {
  const { store, client, transcripts, thumbnails } = deps;
  const { signal } = options;
  const planned: Planned = { pages: 0, listed: 0, rows: [], sizeUnknown: 0, problems: [], skippedCompanies: [] };
  const sums = createSums(planned);
  const among = new Set(connections.map(({ id }) => id));
  const done = new Set<string>();
  for (const connection of connections) {
    let companyId: string | null = null;
    const report = (waitMs?: number) => {
      const { pages, listed } = planned;
      const waitsUntil = waitMs === undefined ? null : new Date(Date.now() + waitMs).toISOString();
      options.report({ connectionId: connection.id, companyId, pages, listed, waitsUntil });
    };
    /** The service's wish to be left alone for a while is told, and kept. */
    const ask = async <T>(call: (token: string) => Promise<T>): Promise<T> => {
      for (;;) {
        try {
          return await deps.withToken(connection.id, call);
        } catch (error) {
          if (!(error instanceof RetryLater)) throw error;
          report(error.waitMs);
          await sleep(error.waitMs, undefined, { signal });
        }
      }
    };
    try {
      if (connection.status !== 'active') throw new Error(`it is ${connection.status}`);
      const me = storable(await ask((token) => client.me({ token, signal })));
      const marks = new Map((await store.connections.companies([connection.id])).map(({ id, mark }) => [id, mark]));
      for (const company of me.companies.filter(({ id }) => !done.has(id))) {
        companyId = company.id;
        done.add(companyId);
        const selections = await selectionsOf(deps, connection, companyId, among);
        if (selections.every((filters) => skipsCompany(filters, company.id))) {
          planned.skippedCompanies.push(companyId);
          continue;
        }
        const mark = marks.get(companyId) ?? null;
        const listing = pagesOf((cursor) =>
          ask((token) => client.listAssets({ token, signal, companyId: company.id, cursor })),
        );
        try {
          for await (const { listed, isDoubtful } of listing) {
            const known = new Map((await store.assets.some(listed.map(({ id }) => id))).map((it) => [it.id, it]));
            for (const asset of listed) {
              const rules = selections.map((filters) => skippingRule(filters, { companyId: company.id, ...asset }));
              const skipped = rules.every((rule) => rule !== null);
              const kind = kindOf(known.get(asset.id), asset, { mark, skipped, transcripts, thumbnails });
              sums.add(company, asset, kind);
            }
            planned.pages++;
            planned.listed += listed.length;
            if (isDoubtful) planned.problems.push(`company ${companyId}: ${doubtfulEnd}`);
            report();
          }
        } catch (error) {
          if (signal.aborted || error instanceof Disconnected) throw error;
          planned.problems.push(`company ${companyId} was not listed to its end: ${reasonOf(error)}`);
        }
      }
    } catch (error) {
      signal.throwIfAborted();
      planned.problems.push(`connection ${connection.id}: ${reasonOf(error)}`);
    }
  }
  planned.rows = sums.rows();
  return planned;
}

/** What a full sync would make of an asset that is listed. Pure. */
export function kindOf(
  before: Asset | undefined,
  listed: ListedAsset,
  options: { mark: number | null; skipped: boolean; transcripts: boolean; thumbnails: boolean },
): PlanKind {
  if (listed.problem !== undefined) return 'unreadable';
  if (options.skipped) {
    if (!before || before.media === null) return 'skipped';
    if (before.state === 'mirrored') return 'same';
  }
  const { transcripts, thumbnails } = options;
  const decision = decide(before, listed, { full: true, transcripts, thumbnails });
  const state = decision?.state ?? before!.state;
  if (state === 'mirrored') return decision ? 'record' : 'same';
  const { status } = listed.listed;
  if (status === 'processing' || status === 'unavailable') return status;
  if (!before) {
    const late = options.mark !== null && listed.uploadDate !== null && listed.uploadDate <= options.mark;
    return late ? 'missing' : 'new';
  }
  return before.media !== null ? 'changed' : 'waiting';
}

/** A listing, page by page, to its end; a page without a new asset comes as an empty one. */
async function* pagesOf(
  ask: (cursor: string | undefined) => Promise<AssetPage>,
): AsyncGenerator<{ listed: ListedAsset[]; isDoubtful: boolean }> {
  const cursors = followCursors('list its assets');
  for (let cursor: string | undefined; ; ) {
    const page = await ask(cursor);
    const listed = listedOn(page);
    const ids = listed.map(({ id }) => id);
    const { next, isNew, isDoubtful } = cursors.after(cursor, { ids, nextCursor: page.nextCursor });
    yield { listed: isNew ? listed : [], isDoubtful };
    if (next === undefined) return;
    cursor = next;
  }
}

/** What those of the connections select that can read a company; of others nothing is said. */
async function selectionsOf(
  { store, filters }: PlanDeps,
  connection: Connection,
  companyId: string,
  among: Set<string>,
): Promise<Filters[]> {
  const others = (await store.filters.readers(companyId)).filter(({ id }) => id !== connection.id && among.has(id));
  return [connection, ...others].map(({ settings }) => filtersOf(settings, filters));
}

function createSums(planned: Planned) {
  const sums = new Map<string, PlanRow>();
  const types = new Map<string, Set<string | null>>();
  return {
    add(company: { id: string; name: string }, asset: ListedAsset, kind: PlanKind): void {
      const told = types.get(company.id) ?? new Set();
      types.set(company.id, told);
      const type = told.has(asset.assetType) || told.size < mostTypes ? asset.assetType : otherTypes;
      told.add(type);
      const key = JSON.stringify([company.id, type, kind]);
      const sum = sums.get(key) ?? {
        companyId: company.id,
        companyName: company.name,
        type,
        kind,
        assets: 0,
        bytes: 0,
      };
      sums.set(key, sum);
      sum.assets++;
      sum.bytes += asset.size ?? 0;
      if (asset.size === null && fetched.includes(kind)) planned.sizeUnknown++;
    },
    rows: (): PlanRow[] => [...sums.values()],
  };
}
