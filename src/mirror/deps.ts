import type { FilterDefaults } from '../filters/filters.ts';
import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Limiter } from '../pacing/adaptive-concurrency.ts';
import type { Budget } from '../pacing/byte-budget.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import type { OutageDetector } from '../pacing/outage.ts';
import type { Access } from '../pacing/with-token.ts';
import type { ConnectionThrottles } from '../source/bandwidth.ts';
import type { LibraryClient } from '../source/client.ts';
import type { Downloader } from '../source/download.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';

export interface MirrorDeps {
  store: Store;
  storage: Storage;
  client: LibraryClient;
  downloader: Downloader;
  withToken: Access;
  /** Of the bucket. */
  breaker: CircuitBreaker;
  libraryBreaker: CircuitBreaker;
  outages: OutageDetector;
  limiter: Limiter;
  budget: Budget;
  log: Log;
  metrics: Metrics;
  timings: Timings;
  keyTemplate: string;
  filters: FilterDefaults;
  /** The bandwidth limit of each connection. */
  throttles: ConnectionThrottles;
  processing: { poll: number; giveUp: number };
  transcripts: { mirror: boolean; delay: number; giveUp: number };
  thumbnails: { mirror: boolean };
  /** How long superseded files are kept, in ms; 0: they are not. */
  keepVersions: number;
}
