import type { FilterDefaults } from '../filters/apply-filters.ts';
import type { Log } from '../log.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Tokens } from '../oauth/tokens.ts';
import type { Access } from '../pacing/with-token.ts';
import type { Queues } from '../queue/queues.ts';
import type { Schedule } from '../queue/scheduler.ts';
import type { LibraryClient } from '../source/client.ts';
import type { Store } from '../store/store.ts';

/** What the verbs stand on. Each takes of it what it uses. */
export interface OperationsDeps {
  store: Store;
  queues: Queues;
  schedule: Schedule;
  sealer: Sealer;
  tokens: Tokens;
  /** Why the bucket takes nothing at present; null: it does. */
  bucketTrouble: () => Promise<string | null>;
  /** Bytes per second that this process downloads now. */
  traffic: () => number;
  /** BANDWIDTH_LIMIT of this process. */
  ownBandwidth: number | undefined;
  publicUrl: string;
  /** The most of a connection at once. */
  perConnection: number;
  /** Milliseconds between incremental syncs of a connection. */
  syncInterval: number;
  /** What connections mirror that say nothing themselves. */
  filters: FilterDefaults;
  log: Log;
  client: LibraryClient;
  /** Calls the API for a connection, at its adaptiveLimit. */
  access: Access;
  /** Whether transcripts are kept at all. */
  transcripts: boolean;
  /** Whether thumbnails are. */
  thumbnails: boolean;
}
