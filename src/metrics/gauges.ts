import { Gauge, type Registry } from 'prom-client';
import type { Log } from '../floor/log.ts';
import { recent } from '../floor/recent.ts';
import { answerWithin } from '../floor/within.ts';
import type { Queues } from '../queue/queues.ts';
import { assetStates, byState } from '../store/counts/states.ts';
import type { Store } from '../store/store.ts';
import type { Metrics } from './metrics.ts';

/** Database and queues are read at most once in `freshMs`, with a time limit of `patienceMs`. */
const freshMs = 10_000;
const patienceMs = 5000;

const statuses = ['active', 'paused', 'disconnected'] as const;

/** Settings have the names of the config. */
interface GaugeDeps {
  metrics: Metrics;
  log: Log;
  store: Store;
  queues: Queues;
  sync: { interval: number };
  scrub: { cycle: number | undefined };
  drillInterval: number | undefined;
  metricsTags: readonly string[];
}

/**
 * Gauges of the database and the queues. They are the same in every process, so only the web role exports them. If one
 * does not answer, its gauges are absent, not old. Returns a function that updates them if they are older than `freshMs`.
 */
export function recordGauges(deps: GaugeDeps): () => Promise<unknown> {
  const readers = [gaugesOfRecords(deps), gaugesOfDrills(deps), gaugesOfQueues(deps)];
  const read = recent(() => Promise.all(readers.map((each) => each())));
  return () => read(freshMs);
}

/** Reads what gauges show. Undefined: it failed or took too long, which is logged once until it works again. */
function reader(log: Log, of: 'records' | 'drills' | 'queues') {
  let isFailing = false;
  return async <T>(read: () => Promise<T>): Promise<T | undefined> => {
    try {
      const found = await answerWithin(patienceMs, read);
      isFailing = false;
      return found;
    } catch (err) {
      if (!isFailing) {
        log.warn({ event: 'metrics.gauges_failed', of, err }, 'gauges omitted: their values cannot be read');
      }
      isFailing = true;
      return undefined;
    }
  };
}

const gaugesIn =
  (registry: Registry) =>
  <Label extends string>(name: string, help: string, ...labelNames: Label[]) =>
    new Gauge<Label>({ name, help, labelNames, registers: [registry] });

function gaugesOfRecords({ metrics, log, store, sync, scrub, metricsTags: tagKeys }: GaugeDeps) {
  const readOrLog = reader(log, 'records');
  const gauge = gaugesIn(metrics.registry);
  const connections = gauge('asset_mirror_connections', 'Connections, by status.', 'status');
  const assets = gauge('asset_mirror_assets', 'Assets in the database, by state.', 'state');
  const stored = gauge('asset_mirror_stored_bytes', 'Bytes of media in the bucket, according to the database.');
  const versionBytes = gauge(
    'asset_mirror_version_bytes',
    'Bytes of superseded files and their sidecars that are kept in the bucket.',
  );
  const syncLag = gauge(
    'asset_mirror_sync_lag_seconds',
    'Seconds since the last complete sync of an active connection, or since it connected.',
    'connection',
  );
  const held = gauge(
    'asset_mirror_held_companies',
    'Companies whose changes wait until an operator accepts them, by kind.',
    'kind',
  );
  const oldestVerification = gauge(
    'asset_mirror_oldest_verification_seconds',
    'Seconds since the oldest verification of a file.',
  );
  const cycle = gauge('asset_mirror_scrub_cycle_seconds', 'Seconds within which the scrub verifies each file.');
  const interval = gauge(
    'asset_mirror_sync_interval_seconds',
    'Seconds between incremental syncs of an active connection.',
    'connection',
  );
  const labelOf = (key: string) => `tag_${key.replaceAll('-', '_')}`;
  const info = gauge(
    'asset_mirror_connection_info',
    'Always 1, for each connection that is not disconnected; the labels have its tags that METRICS_TAGS names.',
    'connection',
    ...tagKeys.map(labelOf),
  );
  const read = () =>
    Promise.all([
      store.connections.countByStatus(),
      store.connections.countHeld(),
      store.connections.lags(sync.interval),
      store.counts.totals(),
      store.versions.total(),
      store.scrub.progress(),
      tagKeys.length > 0 ? store.connections.tagged() : [],
    ]);

  return async (): Promise<void> => {
    const found = await readOrLog(read);
    for (const each of [connections, assets, syncLag, interval, held, info]) each.reset();
    // These gauges have no labels: a reset would set them to 0.
    for (const each of [stored, versionBytes, oldestVerification, cycle]) each.remove();
    if (!found) return;
    const [counts, heldCompanies, lags, rows, versions, { oldest }, tagged] = found;
    if (oldest) oldestVerification.set(Math.max(0, (Date.now() - oldest.getTime()) / 1000));
    if (scrub.cycle !== undefined) cycle.set(scrub.cycle / 1000);
    for (const [kind, count] of Object.entries(heldCompanies)) held.set({ kind }, count);
    versionBytes.set(versions.bytes);
    for (const status of statuses) connections.set({ status }, counts[status] ?? 0);
    stored.set(rows.reduce((sum, { bytes }) => sum + bytes, 0));
    const states = byState(rows);
    for (const state of assetStates) assets.set({ state }, states[state]);
    for (const lag of lags) {
      syncLag.set({ connection: lag.id }, lag.seconds);
      interval.set({ connection: lag.id }, lag.interval);
    }
    for (const { id, tags } of tagged) {
      info.set({ connection: id, ...Object.fromEntries(tagKeys.map((key) => [labelOf(key), tags[key] ?? ''])) }, 1);
    }
  };
}

function gaugesOfDrills({ metrics, log, store, drillInterval }: GaugeDeps) {
  const readOrLog = reader(log, 'drills');
  const gauge = gaugesIn(metrics.registry);
  const passed = gauge('asset_mirror_drill_passed', 'Whether the last restore drill passed: 1 or 0.');
  const age = gauge(
    'asset_mirror_drill_age_seconds',
    'Seconds since the last restore drill ended; before the first one, since the first connection.',
  );
  const interval = gauge('asset_mirror_drill_interval_seconds', 'Seconds between scheduled restore drills.');
  const recovery = gauge(
    'asset_mirror_recovery_seconds',
    'Seconds that a recovery takes according to the last restore drill: records (measured), media (extrapolated).',
    'part',
  );
  return async (): Promise<void> => {
    const found = await readOrLog(() => Promise.all([store.drills.last(), store.drills.lastEndedAt()]));
    recovery.reset();
    for (const each of [passed, age, interval]) each.remove();
    if (!found) return;
    const [drill, endedAt] = found;
    if (drillInterval !== undefined) interval.set(drillInterval / 1000);
    if (endedAt) age.set(Math.max(0, (Date.now() - endedAt.getTime()) / 1000));
    if (drill) {
      passed.set(drill.status === 'passed' ? 1 : 0);
      const { recordsMs, mediaMs = null } = drill.report?.recovery ?? {};
      if (recordsMs !== undefined) recovery.set({ part: 'records' }, recordsMs / 1000);
      if (mediaMs !== null) recovery.set({ part: 'media' }, mediaMs / 1000);
    }
  };
}

function gaugesOfQueues({ metrics, log, queues }: GaugeDeps) {
  const readOrLog = reader(log, 'queues');
  const gauge = gaugesIn(metrics.registry);
  const jobs = gauge('asset_mirror_queue_jobs', 'Jobs on the queues, by state.', 'queue', 'state');
  const oldest = gauge(
    'asset_mirror_queue_oldest_seconds',
    'Seconds that the oldest waiting job has waited for a worker; 0: none waits.',
    'queue',
  );
  return async (): Promise<void> => {
    const found = await readOrLog(() => Promise.all([queues.counts(), queues.oldest()]));
    for (const each of [jobs, oldest]) each.reset();
    if (!found) return;
    const [counts, ages] = found;
    for (const [queue, states] of Object.entries(counts)) {
      for (const [state, count] of Object.entries(states)) jobs.set({ queue, state }, count);
    }
    for (const [queue, seconds] of Object.entries(ages)) oldest.set({ queue }, seconds);
  };
}
