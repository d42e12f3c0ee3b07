import { randomUUID } from 'node:crypto';
import { Disconnected, Rejected, RetryLater, reasonOf } from '../errors.ts';
import {
  type Filters,
  filtersOf,
  type Selectable,
  skippingRule,
  skipReason,
  skipsCompany,
} from '../filters/filters.ts';
import { type Log, withFields } from '../log.ts';
import type { Access } from '../pacing/with-token.ts';
import type { LibraryClient } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import { storable } from '../source/schemas.ts';
import type { ReadableCompany } from '../store/connections/readable-companies.ts';
import type { SyncMode, SyncPosition } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { LeaseLost } from '../store/syncs/lease.ts';
import type { ListedAsset } from '../store/syncs/record-page.ts';
import type { TakenSync } from '../store/syncs/syncs.ts';
import { span, traceHere } from '../tracing/tracing.ts';
import { decide } from './decide.ts';
import { doubtfulEnd, followCursors } from './follow-cursors.ts';
import { judgeMissing } from './judge-missing.ts';
import { listedOf, listedOn, unreadable } from './listed-asset.ts';

export interface SyncDeps {
  store: Store;
  client: LibraryClient;
  withToken: Access;
  log: Log;
  instance: string;
  overlap: number;
  includeTypes: string[];
  excludeTypes: string[];
  /** Whether transcripts are kept at all. */
  transcripts: boolean;
  /** Whether thumbnails are. */
  thumbnails: boolean;
  /** New work is in the records. */
  onWork: () => void;
}

const leaseMs = 45_000;
/** Maximum of unreadable items that are tracked. With more, none of them counts as repaired. */
const unreadableItems = 1000;
/** Statuses with which a service may refuse a cursor. */
const cursorRefused = new Set([400, 404, 410, 422]);

/**
 * Runs the waiting syncs of a connection one after another, under the connection's lease; returns at once if another
 * process has it. With `mode`, first requests a sync of everything in that mode.
 */
export async function runSyncs(
  deps: SyncDeps,
  connectionId: string,
  stop: AbortSignal,
  mode?: SyncMode,
): Promise<string> {
  const { store, log } = deps;
  const owner = `${deps.instance} ${randomUUID()}`;
  const lost = new AbortController();
  const signal = AbortSignal.any([stop, lost.signal]);
  const silence = store.onNotice((notice) => {
    if (notice.connectionId === connectionId) void renew();
  });
  const renew = async () => {
    const held = await store.syncs.renew(connectionId, owner, leaseMs).catch(() => true);
    if (!held) lost.abort(new LeaseLost(`the sync of connection ${connectionId} is no longer ours`));
  };
  const heartbeat = setInterval(() => void renew(), leaseMs / 4);
  let leased = true;
  let runs = 0;
  try {
    let begun = mode && (await store.syncs.begin(connectionId, mode, owner, leaseMs));
    if (mode && !begun) await store.syncs.request(connectionId, mode);
    for (;;) {
      const sync = begun ?? (await store.syncs.takeNext(connectionId, owner, leaseMs));
      begun = undefined;
      if (sync === 'busy') return 'another process is at it';
      if (sync === undefined) return runs === 0 ? 'nothing waited' : `${runs} done`;
      const started = performance.now();
      try {
        const problems = new Problems();
        const run: Run = { sync, settings: sync.settings, owner, problems, signal };
        const fields = { connectionId, syncId: sync.id };
        await withFields(fields, () =>
          span('sync', { ...fields, mode: sync.mode }, async () => {
            const trace = traceHere();
            if (trace) await store.syncs.traced(sync.id, trace);
            return runSync(deps, run);
          }),
        );
        const error = problems.text;
        // Problems with single assets are reported, but do not fail the run.
        const outcome = { status: problems.fatal ? ('failed' as const) : ('done' as const), error };
        const ended = await store.syncs.finish(sync, owner, outcome);
        if (!ended) return 'handed back';
        leased = ended.more;
        const { caughtUp } = ended;
        if (caughtUp) log.info({ connectionId, ...caughtUp }, 'caught up with what came in while not connected');
        runs++;
        log.info(
          {
            connectionId,
            syncId: sync.id,
            mode: sync.mode,
            pages: ended.pages,
            seen: ended.seen,
            new: ended.new,
            changed: ended.changed,
            gone: ended.gone,
            ms: Math.round(performance.now() - started),
            ...(error && { reason: error }),
          },
          error ? 'sync done, with problems' : 'sync done',
        );
        if (!ended.more) return `${runs} done`;
      } catch (error) {
        if (error instanceof Disconnected) return 'the connection is disconnected';
        if (signal.aborted || error instanceof LeaseLost) return 'handed back';
        if (error instanceof RetryLater) {
          if (error.scope === 'connection') await store.connections.park(connectionId, error.waitMs, reasonOf(error));
          const retryInMs = Math.round(error.waitMs);
          log.info({ connectionId, syncId: sync.id, retryInMs, reason: reasonOf(error) }, 'sync waits');
          return 'parked';
        }
        if (error instanceof BrokenOff) {
          log.warn({ connectionId, syncId: sync.id, err: error }, 'listing broken off; it goes on where it was');
          return 'broken off';
        }
        // The run may have ended already, when only the database's answer was lost: then there is nothing to log.
        if (!(await store.syncs.finish(sync, owner, { status: 'failed', error: reasonOf(error) })))
          return 'handed back';
        log.warn({ connectionId, syncId: sync.id, err: error }, 'sync failed; the next one starts from the same marks');
        return 'failed';
      }
    }
  } finally {
    clearInterval(heartbeat);
    silence();
    // The next process to take the lease resumes a run that is still marked as running.
    if (leased) await store.syncs.release(connectionId, owner).catch(() => {});
  }
}

/** Problems that did not stop a run: the first five, and how many more. */
class Problems {
  fatal = false;
  #texts: string[] = [];
  #more = 0;

  add(text: string, options: { fatal: boolean }): void {
    if (this.#texts.length < 5) this.#texts.push(text);
    else this.#more++;
    this.fatal ||= options.fatal;
  }

  get text(): string | null {
    if (this.#texts.length === 0) return null;
    return this.#texts.join('; ') + (this.#more > 0 ? `; and ${this.#more} more` : '');
  }
}

/** A fault after at least one page of a listing: the next run resumes at its cursor. */
class BrokenOff extends Error {
  override readonly name = 'BrokenOff';
}

/** @throws BrokenOff if resuming may help; without a page of progress, or if the same answer would come again, `error` itself */
function breakOff(error: unknown, pages: number): never {
  const final = error instanceof Rejected || (error instanceof HttpError && error.status < 500);
  if (pages === 0 || final || stopsRun(error)) throw error;
  throw new BrokenOff(reasonOf(error), { cause: error });
}

/** Whether an error concerns the connection, and so all of its companies. */
const stopsRun = (error: unknown) =>
  error instanceof LeaseLost || error instanceof Disconnected || error instanceof RetryLater;

interface Run {
  sync: TakenSync;
  /** The connection's settings, as of the last page. */
  settings: Record<string, unknown>;
  owner: string;
  problems: Problems;
  signal: AbortSignal;
}

async function runSync(deps: SyncDeps, run: Run): Promise<void> {
  const { store, client, withToken } = deps;
  const { sync, owner, problems, signal } = run;
  const { connectionId } = sync;
  const me = storable(await withToken(connectionId, (token) => client.me({ token, signal }), sync.grant));
  if (me.user.id !== sync.userId) {
    throw new Error('/me: the service answers for another user than the one who connected');
  }
  const { gained, lost, readable } = await store.connections.setCompanies(connectionId, me.companies, {
    complete: me.problems.length === 0,
    owner,
    before: sync.standing,
  });
  for (const id of lost) deps.log.warn({ connectionId, companyId: id }, 'company can no longer be read');
  for (const id of gained) deps.log.info({ connectionId, companyId: id }, 'company can be read');
  for (const problem of me.problems) problems.add(`/me: ${problem}`, { fatal: false });
  if (sync.scope.assetIds) return requestAssets(deps, run, readable);

  const { companyId } = sync.scope;
  if (companyId !== undefined && !readable.some((company) => company.id === companyId)) {
    problems.add(`company ${companyId}: this connection cannot read it`, { fatal: true });
  }
  const companies = readable.filter(
    (company) => !sync.position.done?.includes(company.id) && (companyId === undefined || companyId === company.id),
  );
  // The company that was interrupted comes first, before its cursor expires.
  companies.sort((a, b) => Number(b.id === sync.position.companyId) - Number(a.id === sync.position.companyId));
  let position = sync.position;
  // A project belongs to one company; for the others the service may answer that there is no such project.
  const searching = sync.scope.projectId !== undefined && companyId === undefined;
  let withoutProject = 0;
  for (const company of companies) {
    if (skipsCompany(filtersOf(run.settings, deps), company.id)) {
      if (companyId !== undefined) problems.add(`company ${companyId} is skipped by a filter`, { fatal: true });
      position = { done: [...(position.done ?? []), company.id] };
      continue;
    }
    try {
      position = await listCompany(deps, run, company, position);
    } catch (error) {
      if (endsRun(error, signal)) throw error;
      if (searching && error instanceof HttpError && error.status < 500 && ++withoutProject < companies.length)
        continue;
      problems.add(reasonOf(error), { fatal: true });
      deps.log.warn({ connectionId, syncId: sync.id, companyId: company.id, err: error }, 'company not listed');
      position = { done: position.done ?? [] };
    }
  }
}

const endsRun = (error: unknown, signal: AbortSignal) =>
  signal.aborted || error instanceof BrokenOff || stopsRun(error);

/**
 * Lists one company into the records, page by page, newest first. The high-water mark moves with the last page only, to the
 * newest upload date seen, so a crash in the middle never hides older assets. An interrupted run resumes at its cursor. A
 * full run ends with the search for assets that are on no page.
 */
async function listCompany(
  deps: SyncDeps,
  run: Run,
  company: ReadableCompany,
  start: SyncPosition,
): Promise<SyncPosition> {
  const { store, client, withToken } = deps;
  const { sync, owner, problems, signal } = run;
  const { connectionId, scope } = sync;
  const full = sync.mode === 'full';
  // `since` is strict, so even without an overlap the millisecond of the mark is listed once more.
  const back = Math.max(deps.overlap, 1);
  const since = scope.since ?? (full || company.mark === null ? undefined : Math.max(0, company.mark - back));
  // Only an unfiltered listing shows all assets up to its newest.
  const unfiltered = scope.since === undefined && scope.projectId === undefined && scope.assetType === undefined;

  const done: SyncPosition = { done: [...(start.done ?? []), company.id] };
  if (start.companyId === company.id && start.listed) return reportMissing(deps, run, company.id, done);
  const resumed = start.companyId === company.id && !!start.cursor;
  let cursor = resumed ? start.cursor! : undefined;
  let newest = resumed ? (start.newest ?? null) : null;
  let began = resumed ? start.began : undefined;
  const reconciles = full && unfiltered;
  const broken = new Set(resumed ? start.unreadable : []);
  const what = `list the assets of company ${company.id}`;
  const cursors = followCursors(what, resumed ? start.progress : undefined);
  let previous: string | undefined;
  for (let pages = 0; ; pages++) {
    const ask = (token: string) =>
      client.listAssets({
        token,
        signal,
        companyId: company.id,
        cursor,
        since,
        // The API takes only one of the two (spec, section 4.6). With a project, types are filtered below.
        ...(scope.projectId !== undefined ? { projectId: scope.projectId } : { assetType: scope.assetType }),
      });
    // The first page follows /me at once, so the token that was read with the lease is still good.
    const grant = pages === 0 && !start.done ? sync.grant : undefined;
    const page = await withToken(connectionId, ask, grant).catch((error) => {
      const isRefused = error instanceof HttpError && cursorRefused.has(error.status);
      // An old cursor may have expired.
      if (isRefused && pages === 0 && resumed) return undefined;
      // Some services repeat the cursor on the last page, and then refuse it.
      if (isRefused && pages > 0 && cursor === previous) {
        problems.add(`${what}: the service refused a cursor that it gave twice; it was taken for the end`, {
          fatal: false,
        });
        return { assets: [], broken: [], nextCursor: undefined, date: Date.now() };
      }
      return breakOff(error, pages);
    });
    if (!page) return listCompany(deps, run, company, { ...start, cursor: null, newest: null });
    const listed = listedOn(page);
    const ids = listed.map(({ id }) => id);
    const { next, repeats, isDoubtful } = cursors.after(cursor, { ids, nextCursor: page.nextCursor });
    if (isDoubtful) problems.add(`${what}: ${doubtfulEnd}`, { fatal: false });
    // Changed settings take effect with the next page.
    const skipped = (asset: ListedAsset, settings: Record<string, unknown>) =>
      skippingRule(filtersOf(settings, deps), selectable(company.id, asset));
    const assets = repeats ? [] : listed.filter((asset) => inScope(asset, scope.assetType));
    for (const { id, problem } of assets) {
      if (problem !== undefined && id.startsWith(unreadable) && broken.size <= unreadableItems) broken.add(id);
    }
    began ??= page.date;
    for (const { uploadDate } of page.assets) {
      // A mark after the first page's date would hide assets that were uploaded since, or are until then.
      if (typeof uploadDate === 'number' && uploadDate <= began && uploadDate > (newest ?? -Infinity))
        newest = uploadDate;
    }
    const last = next === undefined;
    const here = { ...start, companyId: company.id };
    const position: SyncPosition = !last
      ? // A cursor that the database cannot hold is not saved; an interrupted listing then starts over.
        {
          ...here,
          cursor: storable(next) === next ? next : null,
          newest,
          began,
          unreadable: [...broken],
          progress: cursors.progress(),
        }
      : reconciles
        ? { ...here, cursor: null, listed: true }
        : done;
    const isComplete = last && unfiltered;
    const counts = await store.syncs
      .recordPage({
        sync,
        owner,
        leaseMs,
        companyId: company.id,
        assets,
        decide: (before, asset, settings) =>
          decide(before, asset, {
            full,
            transcripts: deps.transcripts,
            thumbnails: deps.thumbnails,
            skipped: skipped(asset, settings),
            connectionId,
          }),
        position,
        ...(isComplete && { mark: newest }),
        ...(reconciles && { sighted: ids }),
        ...(isComplete &&
          full &&
          broken.size <= unreadableItems && { repaired: { prefix: unreadable, except: [...broken] } }),
      })
      .catch((error) => breakOff(error, pages));
    run.settings = counts.settings;
    for (const { id, problem } of counts.refused) problems.add(`asset ${id}: ${problem}`, { fatal: false });
    for (const asset of assets) {
      if (asset.problem === undefined || skipped(asset, run.settings) !== null) continue;
      const { id, name, problem } = asset;
      const called = id.startsWith(unreadable)
        ? `without a readable id${name ? ` (${JSON.stringify(name.slice(0, 100))})` : ''}`
        : id;
      problems.add(`asset ${called}: ${problem}`, { fatal: false });
    }
    if (counts.new + counts.changed + counts.again > 0) deps.onWork();
    if (last) return reconciles ? reportMissing(deps, run, company.id, done) : position;
    previous = cursor;
    cursor = next;
  }
}

async function reportMissing(deps: SyncDeps, run: Run, companyId: string, done: SyncPosition): Promise<SyncPosition> {
  const { sync, owner, problems, signal } = run;
  const { connectionId } = sync;
  const { gone, held } = await judgeMissing(deps, { sync, owner, leaseMs, companyId, signal }, done);
  if (gone > 0) deps.log.warn({ connectionId, companyId, gone }, 'assets are no longer in the library');
  if (held) {
    const { known, missing } = held;
    deps.log.warn(
      { connectionId, companyId, known, missing },
      'much is missing from a listing; nothing is marked as gone',
    );
    problems.add(
      `company ${companyId}: its listing lacks ${missing} of ${known} known assets; nothing is marked as gone. ` +
        `If they are: asset-mirror resync ${connectionId} --full --company ${companyId} --accept-gone`,
      { fatal: false },
    );
  }
  return done;
}

/** Requests each asset that an operator named, and makes it due: its worker compares the bucket and fetches it if needed. */
async function requestAssets(deps: SyncDeps, run: Run, readable: ReadableCompany[]): Promise<void> {
  const { store, client, withToken } = deps;
  const { sync, owner, problems, signal } = run;
  const { connectionId } = sync;
  for (const assetId of sync.scope.assetIds ?? []) {
    const known = await store.assets.get(assetId);
    if (!known) {
      problems.add(`asset ${assetId}: not in the records; a full sync of its company finds it`, { fatal: true });
      continue;
    }
    try {
      const detail = await withToken(connectionId, (token) => client.getAsset({ token, assetId, signal }));
      const { download: _, ...asset } = detail;
      const companyId = companyNow(known, readable);
      if (companyId === undefined) {
        problems.add(
          `asset ${assetId}: this connection cannot read its company ${known.companyId}; if the asset has moved to another one, a full resync finds it there`,
          { fatal: true },
        );
        continue;
      }
      const filters = await filtersNow(deps, connectionId);
      const rule = known.media === null ? skippingRule(filters, selectable(companyId, listedOf(asset))) : null;
      if (rule !== null) {
        problems.add(`asset ${assetId}: ${skipReason(rule)}`, { fatal: true });
        continue;
      }
      const { refused } = await store.syncs.recordPage({
        sync,
        owner,
        leaseMs,
        companyId,
        assets: [listedOf(asset)],
        decide: (before, listed) => decide(before, listed, { full: true, asked: true }),
        position: sync.position,
      });
      for (const { problem } of refused) problems.add(`asset ${assetId}: ${problem}`, { fatal: true });
      deps.onWork();
    } catch (error) {
      if (endsRun(error, signal)) throw error;
      problems.add(reasonOf(error), { fatal: true });
    }
  }
}

/** The company of an asset now: details do not name it, so it is known only if unchanged or the only readable one. */
function companyNow(asset: { companyId: string }, readable: ReadableCompany[]): string | undefined {
  if (readable.some(({ id }) => id === asset.companyId)) return asset.companyId;
  return readable.length === 1 ? readable[0]!.id : undefined;
}

function inScope(asset: ListedAsset, scopeType: string | undefined): boolean {
  // An unreadable asset may be of the requested type.
  if (asset.problem !== undefined && asset.assetType === null) return true;
  return scopeType === undefined || asset.assetType === scopeType;
}

/** Unknown fields of an unreadable asset are undefined: no rule applies to them. */
function selectable(companyId: string, { projectId, assetType, problem }: ListedAsset): Selectable {
  if (problem === undefined) return { companyId, projectId, assetType };
  return { companyId, projectId: projectId ?? undefined, assetType: assetType ?? undefined };
}

async function filtersNow(deps: SyncDeps, connectionId: string): Promise<Filters> {
  return filtersOf((await deps.store.connections.get(connectionId))?.settings ?? {}, deps);
}
