import { createMetrics } from '../../src/metrics/metrics.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';

type Own = 'store' | 'client' | 'withToken' | 'log' | 'timings' | 'overlap';

/** What a sync needs, without filters, and with transcripts and thumbnails. */
export const syncDepsOf = (own: Pick<SyncDeps, Own>): SyncDeps => ({
  ...own,
  instance: 'test',
  goneRetention: Number.POSITIVE_INFINITY,
  filters: { includeTypes: [], excludeTypes: [] },
  transcripts: true,
  thumbnails: true,
  metrics: createMetrics(),
  onWork: () => {},
});
