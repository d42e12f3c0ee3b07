import { setTimeout as sleep } from 'node:timers/promises';
import { type FilterDefaults, type Filters, filtersOf, skippedBy, skipsCompany } from '../filters/filters.ts';
import { Disconnected, RetryLater, reasonOf } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { renderReason } from '../floor/reasons.ts';
import type { Access } from '../pacing/with-token.ts';
import type { AssetPage, LibraryClient } from '../source/client.ts';
import type { Asset, Connection, ListedAsset } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { decide } from './decide.ts';
import { followCursors } from './follow-cursors.ts';
import { listedOn } from './listed-asset.ts';

export interface PlanDeps {
  store: Store;
  client: LibraryClient;
  withToken: Access;
  filters: FilterDefaults;
  /** Whether transcripts are kept at all. */
  transcripts: boolean;
  /** Whether thumbnails are kept at all. */
  thumbnails: boolean;
}

/** What a full sync would do with a listed asset. */
export const planKinds = [
  /** Uploaded since the high-water mark. */
  'new',
  /** Older than the high-water mark, but not in the records. */
  'missing',
  /** Another file than the one in the bucket. */
  'changed',
  /** Known, and not in the bucket yet. */
  'waiting',
  /** Its record is written again, or its transcript, thumbnail or, for a rendition, original is requested. */
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

/** The kinds whose media would be fetched. */
export const fetched: readonly PlanKind[] = ['new', 'missing', 'changed', 'waiting'];

/** Assets, and the bytes of those whose size is known. */
export interface Amount {
  assets: number;
  bytes: number;
}
interface PlanRow extends Amount {
  companyId: string;
  companyName: string;
  type: string | null;
  kind: PlanKind;
}

export interface Planned {
  pages: number;
  /** Assets on these pages. */
  listed: number;
  rows: PlanRow[];
  /** Assets that would be fetched and whose size is unknown. */
  sizeUnknown: number;
  /** What could not be listed, and why. */
  problems: string[];
  /** Companies that the filters skip. They are not listed. */
  skippedCompanies: string[];
}

export interface PlanProgress {
  connectionId: string;
  companyId: string | null;
  pages: number;
  listed: number;
  /** A request waits until then (ISO 8601): the library asked for it, or there is no token now. */
  waitsUntil: string | null;
}

interface PlanOptions {
  signal: AbortSignal;
  report: (progress: PlanProgress) => void;
}

/** How many types of a company are counted separately; the rest counts as `others`. */
const mostTypes = 100;
const otherTypes = 'others';

/**
 * Lists what these connections can read, as a full sync does, and compares it with the records. Writes nothing and requests no
 * media. If several connections can read a company, it is listed once, and only what all of them skip counts as skipped.
 */
export async function plan(deps: PlanDeps, connections: Connection[], options: PlanOptions): Promise<Planned> {
  const planner = new Planner(deps, connections, options);
  for (const connection of connections) {
    try {
      await planner.listConnection(connection);
    } catch (error) {
      options.signal.throwIfAborted();
      planner.result.problems.push(`connection ${connection.id}: ${reasonOf(error)}`);
    }
  }
  return planner.result;
}

class Planner {
  readonly result: Planned = { pages: 0, listed: 0, rows: [], sizeUnknown: 0, problems: [], skippedCompanies: [] };
  readonly #deps: PlanDeps;
  readonly #planned: Set<string>;
  readonly #options: PlanOptions;
  readonly #listedCompanies = new Set<string>();
  readonly #rows = new Map<string, PlanRow>();
  readonly #types = new Map<string, Set<string | null>>();

  constructor(deps: PlanDeps, connections: Connection[], options: PlanOptions) {
    this.#deps = deps;
    this.#planned = new Set(connections.map(({ id }) => id));
    this.#options = options;
  }

  async listConnection(connection: Connection): Promise<void> {
    const { store, client } = this.#deps;
    const { signal } = this.#options;
    if (connection.status !== 'active') throw new Error(`it is ${connection.status}`);
    const me = await this.#request(connection, null, (token) => client.me({ token, signal }));
    for (const problem of me.problems) this.#add({ code: 'invalid_answer', request: 'read /me', problem });
    const highWaterMarks = new Map(
      (await store.connections.companies([connection.id])).map(({ id, highWaterMark }) => [id, highWaterMark]),
    );
    for (const company of me.companies) {
      if (this.#listedCompanies.has(company.id)) continue;
      this.#listedCompanies.add(company.id);
      const filters = await this.#filtersOf(connection, company.id);
      if (filters.every((filter) => skipsCompany(filter, company.id))) {
        this.result.skippedCompanies.push(company.id);
        continue;
      }
      try {
        await this.#listCompany(connection, company, filters, highWaterMarks.get(company.id) ?? null);
      } catch (error) {
        if (signal.aborted || error instanceof Disconnected) throw error;
        this.result.problems.push(`company ${company.id} was not listed to its end: ${reasonOf(error)}`);
      }
    }
  }

  async #listCompany(
    connection: Connection,
    company: { id: string; name: string },
    filters: Filters[],
    highWaterMark: number | null,
  ): Promise<void> {
    const { store, client, transcripts, thumbnails } = this.#deps;
    const { signal } = this.#options;
    const listing = pagesOf((cursor) =>
      this.#request(connection, company.id, (token) =>
        client.listAssets({ token, signal, companyId: company.id, cursor }),
      ),
    );
    for await (const { listed, isDoubtful } of listing) {
      const ids = listed.map(({ id }) => id);
      const known = new Map((await store.assets.withIds(ids)).map((it) => [it.id, it]));
      const erased = await store.removals.erasedAmong(ids);
      for (const asset of listed) {
        if (erased.has(asset.id)) continue;
        const skipped = filters.every((filter) => skippedBy(filter, { companyId: company.id, ...asset }) !== null);
        this.#count(
          company,
          asset,
          kindOf(known.get(asset.id), asset, { highWaterMark, skipped, transcripts, thumbnails }),
        );
      }
      this.result.pages++;
      this.result.listed += listed.length;
      if (isDoubtful) this.#add({ code: 'listing_incomplete', companyId: company.id, cursor: 'to_earlier_page' });
      this.#report(connection, company.id);
    }
  }

  #add(problem: Reason): void {
    this.result.problems.push(renderReason(problem));
  }

  /** Makes a request. If it has to wait, reports that, waits and repeats it. @throws at once if the tokens cannot be decrypted */
  async #request<T>(connection: Connection, companyId: string | null, call: (token: string) => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await this.#deps.withToken(connection.id, call);
      } catch (error) {
        if (!(error instanceof RetryLater) || error.reason.code === 'tokens_unreadable') throw error;
        this.#report(connection, companyId, error.waitMs);
        await sleep(error.waitMs, undefined, { signal: this.#options.signal });
      }
    }
  }

  #report({ id: connectionId }: Connection, companyId: string | null, waitMs?: number): void {
    const waitsUntil = waitMs === undefined ? null : new Date(Date.now() + waitMs).toISOString();
    const { pages, listed } = this.result;
    this.#options.report({ connectionId, companyId, pages, listed, waitsUntil });
  }

  /** The filters of all planned connections that can read the company, this one first. */
  async #filtersOf(connection: Connection, companyId: string): Promise<Filters[]> {
    const readers = await this.#deps.store.filters.readers(companyId);
    const others = readers.filter(({ id }) => id !== connection.id && this.#planned.has(id));
    return [connection, ...others].map(({ settings }) => filtersOf(settings, this.#deps.filters));
  }

  #count(company: { id: string; name: string }, asset: ListedAsset, kind: PlanKind): void {
    const types = this.#types.get(company.id) ?? new Set();
    this.#types.set(company.id, types);
    const type = types.has(asset.assetType) || types.size < mostTypes ? asset.assetType : otherTypes;
    types.add(type);
    const key = JSON.stringify([company.id, type, kind]);
    let row = this.#rows.get(key);
    if (!row) {
      row = { companyId: company.id, companyName: company.name, type, kind, assets: 0, bytes: 0 };
      this.#rows.set(key, row);
      this.result.rows.push(row);
    }
    row.assets++;
    row.bytes += asset.size ?? 0;
    if (asset.size === null && fetched.includes(kind)) this.result.sizeUnknown++;
  }
}

/** What a full sync would do with a listed asset. Pure. */
export function kindOf(
  before: Asset | undefined,
  listed: ListedAsset,
  options: { highWaterMark: number | null; skipped: boolean; transcripts: boolean; thumbnails: boolean },
): PlanKind {
  if (listed.problem !== undefined) return 'unreadable';
  if (options.skipped) {
    if (!before || before.media === null) return 'skipped';
    if (before.state === 'mirrored' || before.state === 'unavailable') return 'same';
  }
  const { transcripts, thumbnails } = options;
  const decision = decide(before, listed, { full: true, transcripts, thumbnails });
  if (decision?.setAside) return 'changed';
  const state = decision?.state ?? before!.state;
  if (state === 'mirrored') return decision ? 'record' : 'same';
  const { status } = listed.listed;
  if (status === 'processing' || status === 'unavailable') return status;
  if (!before) {
    const isOlder =
      options.highWaterMark !== null && listed.uploadDate !== null && listed.uploadDate <= options.highWaterMark;
    return isOlder ? 'missing' : 'new';
  }
  return before.media !== null ? 'changed' : 'waiting';
}

/** All pages of a listing. A page that only repeats earlier assets is empty. */
async function* pagesOf(
  request: (cursor: string | undefined) => Promise<AssetPage>,
): AsyncGenerator<{ listed: ListedAsset[]; isDoubtful: boolean }> {
  const cursors = followCursors('list its assets');
  for (let cursor: string | undefined; ; ) {
    const page = await request(cursor);
    const listed = listedOn(page);
    const ids = listed.map(({ id }) => id);
    const { next, isNew, isDoubtful } = cursors.after(cursor, { ids, nextCursor: page.nextCursor });
    yield { listed: isNew ? listed : [], isDoubtful };
    if (next === undefined) return;
    cursor = next;
  }
}
