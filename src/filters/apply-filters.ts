import { isDeepStrictEqual } from 'node:util';
import { every } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import type { SkippedByFilter } from '../floor/reason-codes.ts';
import type { Timings } from '../floor/timings.ts';
import type { SelectableRow } from '../store/assets/skip-by-filter.ts';
import type { Store } from '../store/store.ts';
import { type FilterDefaults, type Filters, filtersOf, skippedBy, skipsCompany } from './filters.ts';

export interface FiltersApplied {
  /** Assets that are not to be mirrored, or are skipped for another reason than before. */
  skipped: number;
  /** Assets that were skipped before, and are to be mirrored. */
  unskipped: number;
}

const pageSize = 2000;

/**
 * Applies the filters of a connection to the assets of its companies that have no file in the bucket, page by page. Assets that
 * they skip are handed over to another connection that can read and wants them, or else are no longer due. Assets that they no
 * longer skip are due at once. May be interrupted anywhere and run again.
 */
export async function applyFilters(
  { store, log, filters: defaults }: { store: Store; log: Log; filters: FilterDefaults },
  connectionId: string,
  signal: AbortSignal,
): Promise<FiltersApplied> {
  const counts: FiltersApplied = { skipped: 0, unskipped: 0 };
  const connection = await store.connections.get(connectionId);
  if (!connection || connection.status === 'disconnected') return counts;
  const filters = filtersOf(connection.settings, defaults);
  for (const company of await store.connections.companies([connectionId])) {
    const others = await otherReaders(store, company.id, connectionId, defaults);
    for (let after = ''; ; ) {
      signal.throwIfAborted();
      const page = await store.filters.page({ connectionId, companyId: company.id, after, limit: pageSize });
      const { toSkip, toUnskip, toHandOver } = decisionsFor(page, { connectionId, filters, others });
      for (const [otherConnectionId, ids] of toHandOver) await store.filters.handOver(otherConnectionId, ids);
      counts.unskipped += await store.filters.unskip(connectionId, toUnskip);
      counts.skipped += await store.filters.skip(toSkip);
      if (page.length < pageSize) break;
      after = page.at(-1)!.id;
    }
  }
  await store.filters.applied(connectionId, connection.filtersRequested, defaults);
  if (counts.skipped + counts.unskipped > 0)
    log.info({ event: 'filter.applied', connectionId, ...counts }, 'filters applied');
  return counts;
}

/** Decides which assets of a page to skip, to mirror again, or to hand over to another connection. All other assets stay as they are. */
function decisionsFor(
  page: SelectableRow[],
  { connectionId, filters, others }: { connectionId: string; filters: Filters; others: Reader[] },
) {
  const toSkip: { id: string; reason: SkippedByFilter }[] = [];
  const toUnskip: string[] = [];
  const toHandOver = new Map<string, string[]>();
  for (const row of page) {
    const reason = skippedBy(filters, row);
    if (reason === null) {
      if (row.skipped) toUnskip.push(row.id);
    } else if (row.connectionId === connectionId && !isDeepStrictEqual(row.reason, reason)) {
      const otherConnectionId = otherReaderOf(others, row);
      if (otherConnectionId === undefined) toSkip.push({ id: row.id, reason });
      else toHandOver.set(otherConnectionId, [...(toHandOver.get(otherConnectionId) ?? []), row.id]);
    }
  }
  return { toSkip, toUnskip, toHandOver };
}

/** Applies filters whose change was not applied to all assets yet, such as those of the environment. */
export function startApplyingFilters(deps: { store: Store; log: Log; filters: FilterDefaults; timings: Timings }) {
  const { store, log, timings, filters } = deps;
  async function applyPending(signal: AbortSignal): Promise<void> {
    for (const connectionId of await store.filters.pending(filters)) await applyFilters(deps, connectionId, signal);
  }
  const failed = (err: unknown) => log.warn({ event: 'filter.failed', err }, 'changed filters not applied, will retry');
  // A database that does not answer must not delay the shutdown.
  return every(timings.sweep, applyPending, { failed, stopMs: 1000 });
}

/** Another connection that can read a company. */
interface Reader {
  id: string;
  filters: Filters;
}

/** The other connections that want assets of a company, the oldest first. */
async function otherReaders(
  store: Store,
  companyId: string,
  except: string,
  defaults: FilterDefaults,
): Promise<Reader[]> {
  const readers = await store.filters.readers(companyId);
  return readers
    .filter(({ id }) => id !== except)
    .map(({ id, settings }) => ({ id, filters: filtersOf(settings, defaults) }))
    .filter(({ filters }) => !skipsCompany(filters, companyId));
}

function otherReaderOf(
  readers: Reader[],
  asset: Pick<SelectableRow, 'companyId' | 'projectId' | 'assetType'>,
): string | undefined {
  return readers.find(({ filters }) => skippedBy(filters, asset) === null)?.id;
}

/**
 * Why a filter skips a due asset now, and another connection that wants it, if there is one. Undefined if the asset is not
 * skipped, or has a file in the bucket: such assets stay complete.
 */
export async function whyDueAssetIsSkipped(
  { store, filters: defaults }: { store: Store; filters: FilterDefaults },
  asset: Pick<SelectableRow, 'companyId' | 'projectId' | 'assetType'> & {
    connectionId: string;
    media: object | null;
    settings: Record<string, unknown>;
  },
): Promise<{ reason: SkippedByFilter; otherConnectionId: string | undefined } | undefined> {
  if (asset.media !== null) return undefined;
  const reason = skippedBy(filtersOf(asset.settings, defaults), asset);
  if (reason === null) return undefined;
  return {
    reason,
    otherConnectionId: otherReaderOf(await otherReaders(store, asset.companyId, asset.connectionId, defaults), asset),
  };
}
