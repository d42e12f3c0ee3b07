import { randomUUID } from 'node:crypto';
import { LeaseLost, toReason } from '../../floor/errors.ts';
import { every } from '../../floor/every.ts';
import { bothClocks, keepLease } from '../../floor/keep-lease.ts';
import type { Timings } from '../../floor/timings.ts';
import type { CircuitBreaker } from '../../pacing/circuit-breaker.ts';
import { drillKey } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import { failureText } from '../../store/drills/drill-report.ts';
import { unusedObjectKey } from '../publish/unused-object-key.ts';
import { type DrillDeps, runDrill } from './run-drill.ts';

/** How many assets a scheduled drill reads. */
export const usualSample = 20;

export interface ScheduledDrillDeps extends DrillDeps {
  /** Where reports are written. */
  storage: Storage;
  breaker: Pick<CircuitBreaker, 'openReason'>;
  instance: string;
  timings: Timings;
  /** Time between scheduled drills, in ms; undefined: only requested drills. */
  interval: number | undefined;
}

/**
 * Runs requested and scheduled drills, in one process at a time, under a lease in the database. When it dies, another process
 * starts the drill again, and drops the scratch schema of the first.
 */
export function startDrills(deps: ScheduledDrillDeps) {
  const { store, log, interval, timings } = deps;
  const failed = (err: unknown) =>
    log.warn({ event: 'drill.round_failed', err }, 'waiting restore drills not started, will retry');
  const scheduled = [
    every(timings.poll, (signal) => runNextDrill(deps, signal), { failed, later: true }),
    ...(interval === undefined
      ? []
      : [
          every(timings.scheduleCheck, () => store.drills.requestIfDue(interval, usualSample), { failed, later: true }),
        ]),
  ];
  return { stop: () => Promise.all(scheduled.map((work) => work.stop())) };
}

/** Runs the next drill that waits or was interrupted. */
async function runNextDrill(deps: ScheduledDrillDeps, stop: AbortSignal): Promise<void> {
  const { store, log, storage, breaker } = deps;
  const { verificationLease: leaseMs, verificationRetry: waitMs } = deps.timings;
  if (breaker.openReason !== undefined) return;
  const abandoned = await store.drills.failAbandoned();
  if (abandoned) log.error({ event: 'drill.failed', drillId: abandoned }, 'restore drill failed');
  const owner = `${deps.instance} ${randomUUID()}`;
  const since = bothClocks();
  const drill = await store.drills.take(owner, leaseMs);
  if (!drill) return;
  const { id, startedAt } = drill;
  const renew = () => store.drills.renew(id, owner, leaseMs);
  const lease = keepLease(`the drill ${id}`, { leaseMs, stop, since, renew });
  const { signal } = lease;
  try {
    const report = await runDrill(deps, { ...drill, startedAt: startedAt! }, signal);
    const key = await unusedObjectKey(storage, (number) => drillKey(report.day, number));
    await storage.put(key, `${JSON.stringify(report, null, 2)}\n`, { contentType: 'application/json', signal });
    if (!(await store.drills.finish(owner, report, key))) return;
    const { passed, failures, recovery } = report;
    if (passed) log.info({ event: 'drill.passed', drillId: id, key, ...recovery }, 'restore drill passed');
    else {
      const reason = failures.map(failureText).join('; ');
      log.error({ event: 'drill.failed', drillId: id, key, reason, ...recovery }, 'restore drill failed');
    }
  } catch (error) {
    if (error instanceof LeaseLost) return;
    if (signal.aborted) return await store.drills.release(id, owner);
    const hasFailed = await store.drills.attemptFailed({ id, owner, error: toReason(error), waitMs });
    if (hasFailed) log.error({ event: 'drill.failed', drillId: id, err: error }, 'restore drill failed');
    else log.warn({ event: 'drill.interrupted', drillId: id, err: error }, 'restore drill interrupted, will retry');
  } finally {
    lease.end();
  }
}
