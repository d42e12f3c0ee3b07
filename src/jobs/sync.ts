import { randomUUID } from 'node:crypto';
import { Disconnected, Rejected, RetryLater, reasonOf } from '../errors.ts';
import { type Log, withFields } from '../log.ts';
import { storable } from '../source/answers.ts';
import type { LibraryClient } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import type { Decide, ListedAsset } from '../store/listing.ts';
import type { QuietPage } from '../store/quiet-page.ts';
import type { SyncMode, SyncPosition } from '../store/schema.ts';
import type { ReadableCompany } from '../store/standing.ts';
import type { Store } from '../store/store.ts';
import { TurnLost } from '../store/sync-lease.ts';
import type { TakenSync } from '../store/syncs.ts';
import { span, traceHere } from '../tracing/tracing.ts';
import type { Access } from './access.ts';
import { decide } from './decide.ts';
import { brokenOf, listedOf, unreadable } from './listed.ts';
import { judgeMissing } from './missing.ts';
import {
  leavesOutCompany,
  leftOutBy,
  leftOutReason,
  type Selectable,
  type Selection,
  selectionOf,
} from './selection.ts';
import { createWay, leadsBack } from './way.ts';

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
/** So many items without a readable id are kept track of; with more, none of them is taken for repaired. */
const unreadableItems = 1000;
const cursorRefused = new Set([400, 404, 410, 422]);

/**
 * Runs everything that waits for a connection, one after another, under the connection's lease: so there is one running
 * sync, and while it runs whoever comes finds that out here and leaves. With `mode`, asks for such a run over everything.
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
    if (!held) lost.abort(new TurnLost(`the sync of connection ${connectionId} is no longer ours`));
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
      const started = Date.now();
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
        ).catch(async (error) => {
          // What is done of it stays done; without the lease it is refused.
          if (run.passing) await store.syncs.passPage(run.passing).catch(() => {});
          throw error;
        });
        const error = problems.text;
        // What could not be read of single assets is told, and is not a failure of the run.
        const outcome = { status: problems.fatal ? ('failed' as const) : ('done' as const), error };
        const ended = await store.syncs.finish(sync, owner, outcome, run.passing);
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
            ms: Date.now() - started,
            ...(error && { reason: error }),
          },
          error ? 'sync done, with problems' : 'sync done',
        );
        if (!ended.more) return `${runs} done`;
      } catch (error) {
        if (error instanceof Disconnected) return 'the connection is disconnected';
        if (signal.aborted || error instanceof TurnLost) return 'handed back';
        if (error instanceof RetryLater) {
          if (error.scope === 'connection') await store.connections.park(connectionId, error.at, reasonOf(error));
          log.info({ connectionId, syncId: sync.id, until: error.at, reason: reasonOf(error) }, 'sync waits');
          return 'parked';
        }
        if (error instanceof BrokenOff) {
          log.warn({ connectionId, syncId: sync.id, err: error }, 'listing broken off; it goes on where it was');
          return 'broken off';
        }
        // Of a run that has ended already, and only the answer was lost, nothing is said.
        if (!(await store.syncs.finish(sync, owner, { status: 'failed', error: reasonOf(error) })))
          return 'handed back';
        log.warn({ connectionId, syncId: sync.id, err: error }, 'sync failed; the next one starts from the same marks');
        return 'failed';
      }
    }
  } finally {
    clearInterval(heartbeat);
    silence();
    // What is still marked as running is taken up again by whoever comes next.
    if (leased) await store.syncs.release(connectionId, owner).catch(() => {});
  }
}

/** What a run could not do while the rest went on: the first few, and how many. */
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

/** A fault in the middle of a listing that had come some way: whoever comes next goes on at its cursor. */
class BrokenOff extends Error {
  override readonly name = 'BrokenOff';
}

/** Without a page of progress, or when the answer would be the same again, the fault stays what it is. */
function breakOff(error: unknown, pages: number): never {
  const final = error instanceof Rejected || (error instanceof HttpError && error.status < 500);
  const known = error instanceof TurnLost || error instanceof Disconnected || error instanceof RetryLater;
  if (pages === 0 || final || known) throw error;
  throw new BrokenOff(reasonOf(error), { cause: error });
}

interface Run {
  sync: TakenSync;
  /** Of its connection, as they were when the run last looked. */
  settings: Record<string, unknown>;
  owner: string;
  problems: Problems;
  signal: AbortSignal;
  /** The last page of a company, without news: written with what is written next, the end of the run at the latest. */
  passing?: QuietPage | undefined;
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
    complete: me.complete,
    owner,
    before: sync.standing,
  });
  for (const id of lost) deps.log.warn({ connectionId, companyId: id }, 'company can no longer be read');
  for (const id of gained) deps.log.info({ connectionId, companyId: id }, 'company can be read');
  if (!me.complete) problems.add('/me: a company without a readable id or name was left out', { fatal: false });
  if (sync.scope.assetIds) return lookAtAssets(deps, run);

  const { companyId } = sync.scope;
  if (companyId !== undefined && !readable.some((company) => company.id === companyId)) {
    problems.add(`company ${companyId}: this connection cannot read it`, { fatal: true });
  }
  const companies = readable.filter(
    (company) => !sync.position.done?.includes(company.id) && (companyId === undefined || companyId === company.id),
  );
  // The one that was interrupted first: its cursor is the youngest.
  companies.sort((a, b) => Number(b.id === sync.position.companyId) - Number(a.id === sync.position.companyId));
  let position = sync.position;
  // A project is one company's: the others may say that they know of none.
  const searching = sync.scope.projectId !== undefined && companyId === undefined;
  let strangers = 0;
  for (const company of companies) {
    if (leavesOutCompany(selectionOf(run.settings, deps), company.id)) {
      if (companyId !== undefined) problems.add(`company ${companyId} is left out by the settings`, { fatal: true });
      position = { done: [...(position.done ?? []), company.id] };
      continue;
    }
    try {
      position = await listCompany(deps, run, company, position);
    } catch (error) {
      if (endsRun(error, signal)) throw error;
      if (searching && error instanceof HttpError && error.status < 500 && ++strangers < companies.length) continue;
      problems.add(reasonOf(error), { fatal: true });
      deps.log.warn({ connectionId, syncId: sync.id, companyId: company.id, err: error }, 'company not listed');
      position = { done: position.done ?? [] };
    }
  }
}

function endsRun(error: unknown, signal: AbortSignal): boolean {
  if (signal.aborted || error instanceof BrokenOff) return true;
  return error instanceof TurnLost || error instanceof Disconnected || error instanceof RetryLater;
}

/**
 * Lists one company into the records, page by page, newest first. The mark moves with the last page only, to the newest
 * upload date seen, so a crash in the middle never hides the older half. An interrupted run goes on at its cursor. Behind
 * the last page of a full run comes what was on none of them.
 */
async function listCompany(
  deps: SyncDeps,
  run: Run,
  company: ReadableCompany,
  start: SyncPosition,
): Promise<SyncPosition> {
  const { store, client, withToken } = deps;
  const { sync, owner, problems, signal } = run;
  const { connectionId } = sync;
  const { scope } = sync;
  const full = sync.mode === 'full';
  // `since` is strict, so even without an overlap the mark's own millisecond is looked at once more.
  const back = Math.max(deps.overlap, 1);
  const since = scope.since ?? (full || company.mark === null ? undefined : Math.max(0, company.mark - back));
  // Only a listing of everything since the mark says that everything up to its newest is known.
  const everything = scope.since === undefined && scope.projectId === undefined && scope.assetType === undefined;

  const done: SyncPosition = { done: [...(start.done ?? []), company.id] };
  if (start.companyId === company.id && start.listed) return lookForMissing(deps, run, company.id, done);
  const resumed = start.companyId === company.id && !!start.cursor;
  let cursor = resumed ? start.cursor! : undefined;
  let newest = resumed ? (start.newest ?? null) : null;
  let began = resumed ? start.began : undefined;
  // What another version has begun to list has left no sightings.
  const reconciles = full && everything && (!resumed || began !== undefined);
  const broken = new Set(resumed ? start.unreadable : []);
  const way = createWay();
  for (let pages = 0; ; pages++) {
    const page = await withToken(connectionId, (token) =>
      client.listAssets({
        token,
        signal,
        companyId: company.id,
        cursor,
        since,
        // The two are not used together (spec, section 4.6): the project is asked for, the type is sorted out here.
        ...(scope.projectId !== undefined ? { projectId: scope.projectId } : { assetType: scope.assetType }),
      }),
    ).catch((error) => {
      // The service may have forgotten a cursor of long ago.
      if (pages === 0 && resumed && error instanceof HttpError && cursorRefused.has(error.status)) return undefined;
      return breakOff(error, pages);
    });
    if (!page) return listCompany(deps, run, company, { ...start, cursor: null, newest: null });
    const listed = [...page.assets.map(listedOf), ...page.broken.map(({ item, problem }) => brokenOf(item, problem))];
    const { next, back } = way.behind(cursor, { ids: listed.map(({ id }) => id), nextCursor: page.nextCursor });
    if (back) problems.add(`list the assets of company ${company.id}: ${leadsBack}`, { fatal: false });
    // As the settings are now: a change of them takes effect with the next page.
    const known = await store.syncs.known(connectionId, full ? [] : listed.map(({ id }) => id));
    run.settings = known.settings;
    const selection = selectionOf(known.settings, deps);
    const leftOut = (asset: ListedAsset) => leftOutBy(selection, selectable(company.id, asset));
    const decideOn: Decide = (before, asset) =>
      decide(before, asset, {
        full,
        transcripts: deps.transcripts,
        thumbnails: deps.thumbnails,
        leftOut: leftOut(asset),
        connectionId,
      });
    const assets = listed.filter(
      (asset) => inScope(asset, scope.assetType) && (asset.problem === undefined || leftOut(asset) === null),
    );
    for (const { id, name, problem } of assets) {
      if (problem === undefined) continue;
      const readable = !id.startsWith(unreadable);
      if (!readable && broken.size <= unreadableItems) broken.add(id);
      const called = readable ? id : `without a readable id${name ? ` (${JSON.stringify(name.slice(0, 100))})` : ''}`;
      problems.add(`asset ${called}: ${problem}`, { fatal: false });
    }
    began ??= page.date;
    for (const { uploadDate } of page.assets) {
      // A date in the future must not hide what is uploaded until then, nor one of after the first page what it lacked.
      if (typeof uploadDate === 'number' && uploadDate <= began && uploadDate > (newest ?? -Infinity))
        newest = uploadDate;
    }
    const last = next === undefined;
    const position: SyncPosition =
      last && !reconciles
        ? done
        : last
          ? { ...start, companyId: company.id, cursor: null, listed: true }
          : { ...start, companyId: company.id, cursor: next, newest, began, unreadable: [...broken] };
    const common = {
      sync,
      owner,
      leaseMs,
      companyId: company.id,
      position,
      ...(last && everything && { mark: newest }),
    };
    const quiet = !full && assets.every((asset) => decideOn(known.assets.get(asset.id), asset) === undefined);
    const write = async () => {
      if (run.passing) await store.syncs.passPage(run.passing);
      run.passing = undefined;
      if (!quiet) {
        return store.syncs.recordPage({
          ...common,
          assets,
          decide: decideOn,
          ...(reconciles && { sighted: listed.map((asset) => asset.id) }),
          ...(last &&
            everything &&
            full &&
            broken.size <= unreadableItems && { repaired: { prefix: unreadable, except: [...broken] } }),
        });
      }
      const page = { ...common, seen: assets.length };
      if (last) run.passing = page;
      else await store.syncs.passPage(page);
      return undefined;
    };
    const counts = await write().catch((error) => breakOff(error, pages));
    if (counts && counts.new + counts.changed + counts.again > 0) deps.onWork();
    if (last) return reconciles ? lookForMissing(deps, run, company.id, done) : position;
    cursor = next;
  }
}

async function lookForMissing(deps: SyncDeps, run: Run, companyId: string, done: SyncPosition): Promise<SyncPosition> {
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

/** Single assets that an operator named: each is asked for, checked in the bucket, and fetched again if need be. */
async function lookAtAssets(deps: SyncDeps, run: Run): Promise<void> {
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
      const selection = await selectionNow(deps, connectionId);
      const rule = known.media === null ? leftOutBy(selection, selectable(known.companyId, listedOf(asset))) : null;
      if (rule !== null) {
        problems.add(`asset ${assetId}: ${leftOutReason(rule)}`, { fatal: true });
        continue;
      }
      await store.syncs.recordPage({
        sync,
        owner,
        leaseMs,
        companyId: known.companyId,
        assets: [listedOf(asset)],
        decide: (before, listed) => decide(before, listed, { full: true, asked: true }),
        position: sync.position,
      });
      deps.onWork();
    } catch (error) {
      if (endsRun(error, signal)) throw error;
      problems.add(reasonOf(error), { fatal: true });
    }
  }
}

function inScope(asset: ListedAsset, scopeType: string | undefined): boolean {
  // What cannot be read may be of the type that was asked for.
  if (asset.problem !== undefined && asset.assetType === null) return true;
  return scopeType === undefined || asset.assetType === scopeType;
}

/** What cannot be read may be of a project and a type that are wanted. */
function selectable(companyId: string, { projectId, assetType, problem }: ListedAsset): Selectable {
  if (problem === undefined) return { companyId, projectId, assetType };
  return { companyId, projectId: projectId ?? undefined, assetType: assetType ?? undefined };
}

async function selectionNow(deps: SyncDeps, connectionId: string): Promise<Selection> {
  return selectionOf((await deps.store.connections.get(connectionId))?.settings ?? {}, deps);
}
