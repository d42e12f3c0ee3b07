import type { FilterDefaults } from '../filters/filters.ts';
import type { Log } from '../floor/log.ts';
import type { Timings } from '../floor/timings.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Access } from '../pacing/with-token.ts';
import type { LibraryClient } from '../source/client.ts';
import type { Store } from '../store/store.ts';
import type { SyncLease } from '../store/syncs/lease.ts';
import type { TakenSync } from '../store/syncs/take-lease.ts';
import type { Problems } from './problems.ts';

export interface SyncDeps {
  store: Store;
  client: LibraryClient;
  withToken: Access;
  log: Log;
  metrics: Pick<Metrics, 'syncs'>;
  timings: Timings;
  instance: string;
  overlap: number;
  /** GONE_RETENTION in ms. */
  goneRetention: number;
  filters: FilterDefaults;
  /** Whether transcripts are kept at all. */
  transcripts: boolean;
  /** Whether thumbnails are mirrored. */
  thumbnails: boolean;
  /** Called when assets have become due. */
  onWork: () => void;
}

/** A sync that this process runs. */
export interface Run {
  sync: TakenSync;
  /** The connection's settings, as of the last page. */
  settings: Record<string, unknown>;
  lease: SyncLease;
  problems: Problems;
  signal: AbortSignal;
}
