import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { version } from '../floor/version.ts';
import { environmentEndpoint } from '../floor/webhook-kinds.ts';

/** Counters of one process since its start. docs/reference/metrics.md explains each. */
export type Metrics = ReturnType<typeof createMetrics>;

/**
 * How a worker's lease of an asset ended. `waiting`: it is tried again without an attempt spent (processing, asked to wait,
 * bucket or library unavailable); `retried`: with one spent.
 */
const assetResults = ['mirrored', 'unavailable', 'failed', 'retried', 'waiting', 'handed_back'] as const;
export type AssetResult = (typeof assetResults)[number];

/** How a run of a sync ended. `delayed`: asked to wait; `interrupted`: it resumes at its cursor. */
const syncResults = ['done', 'failed', 'delayed', 'interrupted'] as const;

const lockResults = ['extended', 'failed'] as const;

/** `given_up` counts events, the others attempts. */
const webhookResults = ['delivered', 'failed', 'given_up'] as const;

const [minute, hour, day] = [60, 3600, 86_400];

export function createMetrics() {
  const registry = new Registry();
  const registers = [registry];
  const counter = <Label extends string>(name: string, help: string, ...labelNames: Label[]) =>
    new Counter<Label>({ name, help, labelNames, registers });
  const metrics = {
    registry,
    assets: counter('asset_mirror_assets_total', 'Ended leases of assets, by result.', 'result'),
    bytes: counter('asset_mirror_bytes_total', 'Bytes of media and thumbnails downloaded.'),
    resumedBytes: counter('asset_mirror_resumed_bytes_total', 'Bytes that resumed transfers did not download again.'),
    scrubbedBytes: counter('asset_mirror_scrubbed_bytes_total', 'Bytes that the scrub read back from the bucket.'),
    transferSeconds: new Histogram({
      name: 'asset_mirror_transfer_seconds',
      help: 'Seconds from the start of the transfer of a media file until it was verified and recorded.',
      buckets: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, minute, 5 * minute, 15 * minute, hour, 6 * hour],
      registers,
    }),
    freshnessSeconds: new Histogram({
      name: 'asset_mirror_freshness_seconds',
      help: 'Seconds from the upload date of an asset until it was mirrored for the first time.',
      buckets: [10, 30, minute, 2 * minute, 5 * minute, 10 * minute, 30 * minute, hour, 6 * hour, day, 7 * day],
      registers,
    }),
    libraryRequests: counter(
      'asset_mirror_library_requests_total',
      'Requests to the library, by endpoint and by the status of the answer.',
      'endpoint',
      'status',
    ),
    tokenRefreshes: counter('asset_mirror_token_refreshes_total', 'Refreshes of access tokens, by result.', 'result'),
    syncs: counter('asset_mirror_syncs_total', 'Ended syncs, by result.', 'result'),
    lockExtensions: counter(
      'asset_mirror_lock_extensions_total',
      'Object Locks of media and superseded files that were checked, and extended if they were too short, by result.',
      'result',
    ),
    webhookDeliveries: counter(
      'asset_mirror_webhook_deliveries_total',
      'Attempts to deliver an event to a webhook endpoint, and events given up, by result and endpoint.',
      'result',
      'endpoint',
    ),
  };
  // Initialized to 0, so that the first event is an increase.
  for (const result of assetResults) metrics.assets.inc({ result }, 0);
  for (const result of syncResults) metrics.syncs.inc({ result }, 0);
  for (const result of lockResults) metrics.lockExtensions.inc({ result }, 0);
  const endpoint = environmentEndpoint;
  for (const result of webhookResults) metrics.webhookDeliveries.inc({ result, endpoint }, 0);
  for (const result of ['refreshed', 'refused', 'unanswered', 'failed']) metrics.tokenRefreshes.inc({ result }, 0);
  new Gauge({
    name: 'asset_mirror_build_info',
    help: 'Always 1; the labels have the version.',
    labelNames: ['version', 'node'],
    registers,
  }).set({ version, node: process.versions.node }, 1);
  return metrics;
}
