import { filtersOf, skippedBy } from '../filters/filters.ts';
import type { Reason } from '../floor/reason-codes.ts';
import type { AssetPage } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import { storable } from '../source/schemas.ts';
import type { ReadableCompany } from '../store/companies/readable-companies.ts';
import { type CompanyPosition, type ListedAsset, unreadablePrefix } from '../store/database/schema.ts';
import { decide } from './decide.ts';
import type { Run, SyncDeps } from './deps.ts';
import { followCursors } from './follow-cursors.ts';
import { judgeMissing } from './judge-missing.ts';
import { judgeReplaced } from './judge-replaced.ts';
import { listedOn, selectable } from './listed-asset.ts';
import { interruptListing, isResumable, type Problems } from './problems.ts';

/** Maximum of unreadable items that are tracked. With more, none of them counts as repaired. */
const mostUnreadable = 1000;
/** Statuses with which a library may refuse a cursor. */
const cursorRefused = new Set([400, 404, 410, 422]);

/**
 * Lists one company into the records, page by page, newest first. The high-water mark moves with the last page only, to the
 * newest upload date seen, so a crash in the middle never hides older assets. An interrupted run resumes at its cursor. At
 * the end, replaced files are judged and, in a full run, assets that are on no page.
 */
export async function listCompany(
  deps: SyncDeps,
  run: Run,
  company: ReadableCompany,
  start: CompanyPosition = {},
): Promise<void> {
  const listing = openListing(deps, run, company, start);
  const isListed = start.listed === true;
  // A full run that was interrupted after its listing may not have judged the replacements. To judge them again does no harm.
  let toJudge = isListed;
  let upcoming = isListed ? undefined : requestPage(deps, run, listing);
  while (upcoming) {
    const page = await upcoming;
    if (page === 'cursor expired')
      return listCompany(deps, run, company, { ...start, cursor: null, newest: null, restarted: true });
    const assets = readPage(run, listing, page);
    // The next page is requested while this one is recorded. Its error is handled after that.
    upcoming = listing.cursor === undefined ? undefined : requestPage(deps, run, listing);
    upcoming?.catch(() => {});
    toJudge = await savePage(deps, run, listing, assets);
  }
  if (toJudge) await judgeReplaced(deps, run, company.id, listing);
  if (run.sync.scope.acceptRemoved) {
    const { requestedAt: at } = run.sync;
    await deps.store.removals.accept({ companyId: company.id, at, retentionMs: deps.goneRetention });
  }
  if (listing.reconciles) await judgeMissing(deps, run, company.id, listing);
}

/** The state of a listing: new, or that of the run that was interrupted. */
function openListing({ overlap }: SyncDeps, { sync }: Run, company: ReadableCompany, start: CompanyPosition) {
  const { scope } = sync;
  const full = sync.mode === 'full';
  // `since` is strict, so even without an overlap the millisecond of the high-water mark is listed once more.
  const back = Math.max(overlap, 1);
  // Only a listing without limits shows all assets up to its newest.
  const unlimited = scope.since === undefined && scope.projectId === undefined && scope.assetType === undefined;
  const what = `list the assets of company ${company.id}`;
  const resumed = start.cursor ? start : undefined;
  return {
    company,
    start,
    since:
      scope.since ?? (full || company.highWaterMark === null ? undefined : Math.max(0, company.highWaterMark - back)),
    unlimited,
    reconciles: full && unlimited,
    cursors: followCursors(what, resumed?.progress),
    /** Pages that were read. */
    pages: 0,
    cursor: resumed?.cursor ?? undefined,
    previousCursor: undefined as string | undefined,
    newest: resumed?.newest ?? null,
    began: resumed?.began,
    unreadable: new Set(resumed?.unreadable),
    /** Why it may have ended too early. */
    doubt: start.doubt,
  };
}
type Listing = ReturnType<typeof openListing>;

/** `pages`: those that this run has read. An error of a request is handled after they are recorded. */
const makesProgress = ({ start }: Listing, pages: number) => (pages > 0 && !start.restarted) || isResumable(start);

async function requestPage(deps: SyncDeps, run: Run, listing: Listing): Promise<AssetPage | 'cursor expired'> {
  const { sync, problems, signal } = run;
  const { projectId, assetType } = sync.scope;
  const { company, since, cursor, pages } = listing;
  // The API takes only one of the two (spec, section 4.6). With a project, `readPage` filters by type.
  const filter = projectId !== undefined ? { projectId } : { assetType };
  const request = (token: string) =>
    deps.client.listAssets({ token, signal, companyId: company.id, cursor, since, ...filter });
  try {
    return await deps.withToken(sync.connectionId, request);
  } catch (error) {
    const isRefused = error instanceof HttpError && cursorRefused.has(error.status);
    if (isRefused && pages === 0 && cursor !== undefined) return 'cursor expired';
    // Some libraries repeat the cursor on the last page, and then refuse it.
    if (isRefused && pages > 0 && cursor === listing.previousCursor) {
      reportDoubt(problems, listing, 'refused');
      return { assets: [], broken: [], nextCursor: undefined, date: Date.now() };
    }
    return interruptListing(error, makesProgress(listing, pages));
  }
}

/** Reports that a listing may have ended too early. */
function reportDoubt(problems: Problems, listing: Listing, cursor: NonNullable<Listing['doubt']>): void {
  problems.addDoubt(listing.company.id, cursor);
  listing.doubt = cursor;
}

/** The assets of a page, to be recorded. Moves the listing on: without a cursor, it was the last page. */
function readPage({ sync, problems }: Run, listing: Listing, page: AssetPage) {
  const listed = listedOn(page);
  const ids = listed.map(({ id }) => id);
  const { next, repeats, isDoubtful } = listing.cursors.after(listing.cursor, { ids, nextCursor: page.nextCursor });
  if (isDoubtful) reportDoubt(problems, listing, 'to_earlier_page');
  const assets = repeats ? [] : listed.filter((asset) => inScope(asset, sync.scope.assetType));
  advance(listing, page, assets);
  listing.pages++;
  listing.previousCursor = listing.cursor;
  listing.cursor = next;
  return { ids, assets };
}

/** Writes the page that was read last into the records. Returns whether the company has replacements to judge. */
async function savePage(deps: SyncDeps, run: Run, listing: Listing, { ids, assets }: ReturnType<typeof readPage>) {
  const { sync, lease, problems } = run;
  const { company, reconciles } = listing;
  const { transcripts, thumbnails } = deps;
  const { connectionId } = sync;
  // Changed settings take effect with the next page.
  const skipReasonOf = (asset: ListedAsset, settings: Record<string, unknown>) =>
    skippedBy(filtersOf(settings, deps.filters), selectable(company.id, asset));
  const full = sync.mode === 'full';
  const isLast = listing.cursor === undefined;
  const counts = await deps.store.syncs
    .recordPage({
      sync,
      lease,
      companyId: company.id,
      assets,
      decide: (before, asset, settings) =>
        decide(before, asset, {
          full,
          transcripts,
          thumbnails,
          skipReason: skipReasonOf(asset, settings),
          connectionId,
        }),
      position: positionAt(listing),
      ...(isLast && listing.unlimited && { highWaterMark: listing.newest }),
      ...(reconciles && { sighted: ids }),
      ...(isLast &&
        reconciles &&
        !listing.doubt &&
        listing.unreadable.size <= mostUnreadable && { stillUnreadable: [...listing.unreadable] }),
    })
    .catch((error) => interruptListing(error, makesProgress(listing, listing.pages - 1)));
  run.settings = counts.settings;
  const addProblem = ({ id, name }: Pick<ListedAsset, 'id' | 'name'>, reason: Reason) => {
    const asset = id.startsWith(unreadablePrefix) ? { assetId: null, name } : { assetId: id };
    problems.add({ code: 'asset_problem', ...asset, reason }, { failsRun: false });
  };
  for (const { id, reason } of counts.refused) addProblem({ id, name: null }, reason);
  for (const asset of assets) {
    if (asset.problem === undefined || skipReasonOf(asset, run.settings) !== null) continue;
    addProblem(asset, asset.problem);
  }
  if (counts.hasWork) deps.onWork();
  return counts.toJudge;
}

/** Updates the state of the listing from a page. */
function advance(listing: Listing, page: AssetPage, assets: ListedAsset[]): void {
  const { unreadable } = listing;
  for (const { id, problem } of assets) {
    if (problem !== undefined && id.startsWith(unreadablePrefix) && unreadable.size <= mostUnreadable)
      unreadable.add(id);
  }
  listing.began ??= page.date;
  for (const { uploadDate } of page.assets) {
    // A high-water mark after the first page's date would hide assets that were uploaded since, or will be until then.
    if (typeof uploadDate !== 'number' || uploadDate > listing.began) continue;
    listing.newest = Math.max(uploadDate, listing.newest ?? uploadDate);
  }
}

/** Where an interrupted run resumes after the page that was read last. */
function positionAt(listing: Listing): CompanyPosition {
  const { reconciles, newest, cursors, cursor: next, doubt } = listing;
  const { waits: _, ...start } = listing.start;
  if (next === undefined) return reconciles ? { ...start, cursor: null, listed: true, doubt } : { done: true, doubt };
  // A cursor that the database cannot hold is not saved; an interrupted listing then starts over.
  const cursor = storable(next) === next ? next : null;
  return {
    ...start,
    cursor,
    newest,
    recordedAt: Date.now(),
    began: listing.began!,
    unreadable: [...listing.unreadable],
    progress: cursors.progress(),
  };
}

function inScope(asset: ListedAsset, scopeType: string | undefined): boolean {
  // An unreadable asset may be of the requested type.
  if (asset.problem !== undefined && asset.assetType === null) return true;
  return scopeType === undefined || asset.assetType === scopeType;
}
