import { randomUUID } from 'node:crypto';
import { filtersOf, skipsCompany } from '../filters/filters.ts';
import { concurrently } from '../floor/concurrently.ts';
import { Disconnected, KnownError, LeaseLost, RetryLater, toReason } from '../floor/errors.ts';
import { bothClocks, keepLease } from '../floor/keep-lease.ts';
import { withFields } from '../floor/log.ts';
import { combineReasons, reasonFields } from '../floor/reasons.ts';
import { ceilingOf } from '../pacing/adaptive-concurrency.ts';
import { HttpError } from '../source/http.ts';
import type { ReadableCompany } from '../store/companies/readable-companies.ts';
import type { Waits } from '../store/database/schema.ts';
import { span, traceHere } from '../tracing/tracing.ts';
import type { Run, SyncDeps } from './deps.ts';
import { listCompany } from './list-company.ts';
import { interruptListing, isResumable, ListingInterrupted, Problems, stopsRun } from './problems.ts';
import { requestAssets } from './request-assets.ts';

/** Companies of a connection that are listed at once, if its settings allow as many. */
const companiesAtOnce = 4;
/**
 * The listing of a company fails after this many waits in a row, if they take this long: each of them stops the whole run. A limit of
 * the library may last for a day.
 */
const mostWaits = { count: 5, ms: 25 * 3_600_000 };

const areTooMany = ({ count, ms }: Waits) => count > mostWaits.count && ms > mostWaits.ms;

/** Why `runSyncs` ended. `busy`: another process has the lease. The queue dashboard shows it. */
export interface RunsEnd {
  outcome: 'done' | 'busy' | 'handed_back' | 'disconnected' | 'delayed' | 'interrupted' | 'failed';
  /** Runs that ended before. */
  done: number;
}

/**
 * Runs the waiting syncs of a connection one after another, under the connection's lease; returns at once if another
 * process has it.
 */
export async function runSyncs(deps: SyncDeps, connectionId: string, stop: AbortSignal): Promise<RunsEnd> {
  const { syncs } = deps.store;
  const owner = `${deps.instance} ${randomUUID()}`;
  const lease = { connectionId, owner, leaseMs: deps.timings.syncLease };
  // Before the lease is taken, it cannot be renewed, and notices are of earlier changes.
  let isTaken = false;
  const renew = async () => !isTaken || syncs.extendLease(lease);
  const options = { leaseMs: lease.leaseMs, stop, since: bothClocks(), renew };
  const kept = keepLease(`the sync of connection ${connectionId}`, options);
  const { signal } = kept;
  const unsubscribe = deps.store.onNotice((notice) => {
    if (notice.connectionId === connectionId) void kept.check();
  });
  let isReleased = false;
  try {
    for (let done = 0; ; done++) {
      const sync = await syncs.takeNext(lease);
      if (sync === 'busy') return { outcome: 'busy', done };
      if (sync === undefined) return { outcome: 'done', done };
      isTaken = true;
      const run: Run = { sync, settings: sync.settings, lease, problems: new Problems(), signal };
      const end = await runSync(deps, run).catch((error) => endEarly(deps, run, error));
      if (end === 'released') {
        isReleased = true;
        return { outcome: 'done', done: done + 1 };
      }
      if (end !== 'more_wait') return { outcome: end, done };
    }
  } finally {
    kept.end();
    unsubscribe();
    // The next process to take the lease resumes a run that is still marked as running.
    if (!isReleased) await syncs.release(lease).catch(() => {});
  }
}

/** Runs one sync to its end. `released`: no other waits, and the lease is released; `more_wait`: others wait. */
async function runSync(deps: SyncDeps, run: Run): Promise<'released' | 'more_wait' | 'handed_back'> {
  const { store, log, metrics } = deps;
  const { sync, lease, problems } = run;
  const { connectionId } = sync;
  const started = performance.now();
  const fields = { connectionId, syncId: sync.id };
  await withFields(fields, () =>
    span('sync', { ...fields, mode: sync.mode }, async () => {
      const trace = traceHere();
      if (trace) await store.syncs.saveTrace(sync.id, trace);
      return list(deps, run);
    }),
  );
  // Problems with single assets are reported, but do not fail the run.
  const { found: error, held } = problems;
  const ended = await store.syncs.endSync(sync, lease, { status: problems.failsRun ? 'failed' : 'done', error, held });
  if (!ended) return 'handed_back';
  metrics.syncs.inc({ result: problems.failsRun ? 'failed' : 'done' });
  const { more, caughtUp, pages, seen, new: isNew, changed, gone } = ended;
  if (caughtUp) log.info({ event: 'connection.caught_up', connectionId, ...caughtUp }, 'caught up after reconnect');
  const ms = Math.round(performance.now() - started);
  const reason = combineReasons([error, held]);
  const found = { mode: sync.mode, pages, seen, new: isNew, changed, gone, ms, ...(reason && reasonFields(reason)) };
  if (problems.failsRun) log.warn({ event: 'sync.failed', ...fields, ...found }, 'sync failed');
  else log.info({ event: 'sync.done', ...fields, ...found }, 'sync done');
  return more ? 'more_wait' : 'released';
}

/** Decides about a sync that an error has stopped. */
async function endEarly(
  { store, log, metrics }: SyncDeps,
  { sync, lease, problems, signal }: Run,
  error: unknown,
): Promise<Exclude<RunsEnd['outcome'], 'done' | 'busy'>> {
  const { connectionId } = sync;
  const fields = { connectionId, syncId: sync.id };
  const reason = toReason(error);
  if (error instanceof Disconnected) return 'disconnected';
  if (signal.aborted || error instanceof LeaseLost) return 'handed_back';
  if (error instanceof RetryLater) {
    if (error.scope === 'connection') await store.connections.delay(connectionId, error.waitMs, reason);
    metrics.syncs.inc({ result: 'delayed' });
    log.info(
      { event: 'sync.delayed', ...fields, retryInMs: Math.round(error.waitMs), ...reasonFields(reason) },
      'sync delayed',
    );
    return 'delayed';
  }
  if (error instanceof ListingInterrupted) {
    metrics.syncs.inc({ result: 'interrupted' });
    log.warn({ event: 'sync.interrupted', ...fields, err: error }, 'sync interrupted');
    return 'interrupted';
  }
  const { found, held } = problems;
  const all = combineReasons([reason, found])!;
  const outcome = { status: 'failed', error: all, held } as const;
  // If only the database's answer was lost, the run has ended already: then there is nothing to log.
  if (!(await store.syncs.endSync(sync, lease, outcome))) return 'handed_back';
  metrics.syncs.inc({ result: 'failed' });
  log.warn({ event: 'sync.failed', ...fields, ...reasonFields(all), err: error }, 'sync failed');
  return 'failed';
}

/** Lists what the sync covers into the records: the companies that the user can read now, or single assets. */
async function list(deps: SyncDeps, run: Run): Promise<void> {
  const { sync, problems } = run;
  // Reported again by a run that was interrupted after such a listing.
  for (const [companyId, { doubt }] of Object.entries(sync.position)) if (doubt) problems.addDoubt(companyId, doubt);
  const readable = await readCompanies(deps, run);
  if (sync.scope.assetIds) return requestAssets(deps, run, readable);
  const { companyId } = sync.scope;
  if (companyId !== undefined && !readable.some((company) => company.id === companyId)) {
    problems.add({ code: 'company_not_readable', companyId }, { failsRun: true });
  }
  const companies = readable.filter(
    (company) => !sync.position[company.id]?.done && (companyId === undefined || companyId === company.id),
  );
  // Companies that were interrupted come first, before their cursors expire.
  const begun = (company: ReadableCompany) => Number(sync.position[company.id]?.recordedAt !== undefined);
  companies.sort((a, b) => begun(b) - begun(a));
  await listCompanies(deps, run, companies);
}

/** Requests the companies that the user can read now, and stores them. */
async function readCompanies(
  { store, client, withToken, log }: SyncDeps,
  { sync, lease, problems, signal }: Run,
): Promise<ReadableCompany[]> {
  const { connectionId } = sync;
  const request = (token: string) => client.me({ token, signal });
  const me = await withToken(connectionId, request, { stored: sync.storedTokens }).catch((error) =>
    // An outage of the library must not discard the pages that are recorded.
    interruptListing(error, Object.values(sync.position).some(isResumable)),
  );
  if (me.user.id !== sync.userId) throw new KnownError({ code: 'another_user' });
  const { gained, lost, readable } = await store.connections.setCompanies(connectionId, me.companies, {
    complete: me.problems.length === 0,
    owner: lease.owner,
    before: sync.companyAccess,
  });
  for (const id of lost)
    log.warn({ event: 'company.lost', connectionId, companyId: id }, 'connection lost access to a company');
  for (const id of gained)
    log.info({ event: 'company.gained', connectionId, companyId: id }, 'connection gained access to a company');
  for (const problem of me.problems) {
    problems.add({ code: 'invalid_answer', request: 'read /me', problem }, { failsRun: false });
  }
  return readable;
}

/**
 * Lists companies at the same time. An error that stops the run stops all of them. A company whose requests are always answered with
 * a wait comes last, so that the others are listed, and then fails.
 */
async function listCompanies(deps: SyncDeps, run: Run, companies: ReadableCompany[]): Promise<void> {
  const { sync, problems } = run;
  const { companyId, projectId } = sync.scope;
  const listed = await withoutSkipped(deps, run, companies);
  const stopping = new AbortController();
  const stoppable = { ...run, signal: AbortSignal.any([run.signal, stopping.signal]) };
  // A project belongs to one company. For the others, the library may answer that there is no such project.
  const searching = projectId !== undefined && companyId === undefined;
  const isFound = Object.values(sync.position).some(({ done }) => done);
  const refusals: { company: ReadableCompany; error: HttpError }[] = [];
  let interrupted: ListingInterrupted | undefined;
  const atOnce = Math.min(companiesAtOnce, ceilingOf(run.settings, companiesAtOnce));
  const report = (company: ReadableCompany, error: unknown) => {
    problems.add(toReason(error), { failsRun: true });
    const fields = { connectionId: sync.connectionId, syncId: sync.id, companyId: company.id };
    deps.log.warn({ event: 'company.listing_failed', ...fields, err: error }, 'company not listed');
  };
  const listOne = async (company: ReadableCompany) => {
    const { waits } = sync.position[company.id] ?? {};
    try {
      // An earlier run of this sync gave it up, and then had to wait for another company.
      if (waits && areTooMany(waits)) throw new KnownError(waits.reason);
      await listCompany(deps, stoppable, company, sync.position[company.id]);
    } catch (error) {
      if (stopsRun(error, stoppable.signal) && !(await countWait(deps, stoppable, company.id, error))) {
        stopping.abort(error);
        throw error;
      }
      if (error instanceof ListingInterrupted) {
        interrupted = error;
        return;
      }
      if (searching && error instanceof HttpError && error.status < 500) refusals.push({ company, error });
      else report(company, error);
    }
  };
  // A single wait may be due to the requests of the other companies.
  const delayed = listed.filter(({ id }) => (sync.position[id]?.waits?.count ?? 0) > 1);
  const others = listed.filter((company) => !delayed.includes(company));
  for (const group of [others, delayed]) await concurrently(group, atOnce, listOne);
  const last = refusals.at(-1);
  if (last && !isFound && refusals.length === listed.length) report(last.company, last.error);
  // The other companies are listed first.
  if (interrupted) throw interrupted;
}

/** The companies that the filters do not skip as a whole. Nothing is held any more for the others. */
async function withoutSkipped(deps: SyncDeps, run: Run, companies: ReadableCompany[]): Promise<ReadableCompany[]> {
  const { connectionId, scope } = run.sync;
  const filters = filtersOf(run.settings, deps.filters);
  const skipped = companies.filter(({ id }) => skipsCompany(filters, id));
  if (skipped.length === 0) return companies;
  await deps.store.connections.endHeldChanges(
    connectionId,
    skipped.map(({ id }) => id),
  );
  if (scope.companyId !== undefined) {
    run.problems.add({ code: 'company_skipped', companyId: scope.companyId }, { failsRun: true });
  }
  return companies.filter((company) => !skipped.includes(company));
}

/** Counts a wait that the library asks for. True: too many have followed each other. The next sync counts from the beginning. */
async function countWait(deps: SyncDeps, run: Run, companyId: string, error: unknown): Promise<boolean> {
  if (run.signal.aborted || !(error instanceof RetryLater) || error.reason.code !== 'asked_to_wait') return false;
  const { waitMs: ms, reason } = error;
  // If the database fails now, only this wait is not counted.
  const waits = await deps.store.syncs.addWait({ ...run, companyId }, { ms, reason }).catch(() => undefined);
  return waits !== undefined && areTooMany(waits);
}
