import { Gauge, type Registry } from 'prom-client';
import type { Queues } from '../queue/queues.ts';
import { recent } from '../recent.ts';
import { assetStates, byState } from '../store/assets/counts.ts';
import type { Store } from '../store/store.ts';
import { within } from '../within.ts';

/** Database and queues are read at most once in `freshMs`, with a time limit of `patienceMs`. */
const freshMs = 10_000;
const patienceMs = 5000;

const statuses = ['active', 'paused', 'disconnected'] as const;

/**
 * Gauges of the database and the queues. They are the same in every process, so only the web role exports them. If one
 * does not answer, its gauges are absent, not old.
 */
export function recordGauges(
  registry: Registry,
  {
    store,
    queues,
    syncInterval,
    scrubCycle: cycle,
  }: { store: Store; queues: Queues; syncInterval: number; scrubCycle: number | undefined },
) {
  const registers = [registry];
  const connections = new Gauge({
    name: 'asset_mirror_connections',
    help: 'Connections, by status.',
    labelNames: ['status'],
    registers,
  });
  const assets = new Gauge({
    name: 'asset_mirror_assets',
    help: 'Assets in the database, by state.',
    labelNames: ['state'],
    registers,
  });
  const stored = new Gauge({
    name: 'asset_mirror_stored_bytes',
    help: 'Bytes of media in the bucket, according to the database.',
    registers,
  });
  const versionBytes = new Gauge({
    name: 'asset_mirror_version_bytes',
    help: 'Bytes of superseded files and their sidecars that are kept in the bucket.',
    registers,
  });
  const syncLag = new Gauge({
    name: 'asset_mirror_sync_lag_seconds',
    help: 'Seconds since the last complete sync of an active connection, or since it connected.',
    labelNames: ['connection'],
    registers,
  });
  const held = new Gauge({
    name: 'asset_mirror_held_companies',
    help: 'Companies whose changes wait until an operator accepts them, by kind.',
    labelNames: ['kind'],
    registers,
  });
  const oldestVerification = new Gauge({
    name: 'asset_mirror_oldest_verification_seconds',
    help: 'Seconds since the file that was not verified for the longest time was verified.',
    registers,
  });
  const scrubCycle = new Gauge({
    name: 'asset_mirror_scrub_cycle_seconds',
    help: 'Seconds within which the scrub verifies each file.',
    registers,
  });
  const interval = new Gauge({
    name: 'asset_mirror_sync_interval_seconds',
    help: 'Seconds between incremental syncs of an active connection.',
    labelNames: ['connection'],
    registers,
  });
  const jobs = new Gauge({
    name: 'asset_mirror_queue_jobs',
    help: 'Jobs on the queues, by state.',
    labelNames: ['queue', 'state'],
    registers,
  });
  const oldest = new Gauge({
    name: 'asset_mirror_queue_oldest_seconds',
    help: 'Seconds that the oldest waiting job has waited for a worker; 0: none waits.',
    labelNames: ['queue'],
    registers,
  });

  async function readRecords(): Promise<void> {
    const found = await within(
      patienceMs,
      Promise.all([
        store.connections.countByStatus(),
        store.connections.countHeld(),
        store.connections.lags(syncInterval),
        store.counts.totals(),
        store.versions.total(),
        store.scrub.progress(),
      ]),
    ).catch(() => undefined);
    for (const gauge of [connections, assets, syncLag, interval, held]) gauge.reset();
    // Without labels, a reset would set them to 0.
    for (const gauge of [stored, versionBytes, oldestVerification, scrubCycle]) gauge.remove();
    if (!found) return;
    const [counts, holds, lags, rows, versions, { oldest: verified }] = found;
    if (verified) oldestVerification.set(Math.max(0, (Date.now() - verified.getTime()) / 1000));
    if (cycle !== undefined) scrubCycle.set(cycle / 1000);
    for (const [kind, count] of Object.entries(holds)) held.set({ kind }, count);
    versionBytes.set(versions.bytes);
    for (const status of statuses) connections.set({ status }, counts[status] ?? 0);
    stored.set(rows.reduce((sum, { bytes }) => sum + bytes, 0));
    const states = byState(rows);
    for (const state of assetStates) assets.set({ state }, states[state]);
    for (const lag of lags) {
      syncLag.set({ connection: lag.id }, lag.seconds);
      interval.set({ connection: lag.id }, lag.interval);
    }
  }

  async function readQueues(): Promise<void> {
    const found = await within(patienceMs, Promise.all([queues.counts(), queues.oldest()])).catch(() => undefined);
    for (const gauge of [jobs, oldest]) gauge.reset();
    if (!found) return;
    const [counts, ages] = found;
    for (const [queue, states] of Object.entries(counts)) {
      for (const [state, count] of Object.entries(states)) jobs.set({ queue, state }, count);
    }
    for (const [queue, seconds] of Object.entries(ages)) oldest.set({ queue }, seconds);
  }

  const read = recent(() => Promise.all([readRecords(), readQueues()]));
  return {
    /** Updates the gauges if they are older than `freshMs`. */
    async refresh(): Promise<void> {
      await read(freshMs);
    },
  };
}
