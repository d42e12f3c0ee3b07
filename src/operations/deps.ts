import type { FilterDefaults } from '../filters/filters.ts';
import type { Bandwidth } from '../floor/bandwidth-limit.ts';
import type { Log } from '../floor/log.ts';
import type { SigningKeys } from '../floor/signing.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Tokens } from '../oauth/tokens.ts';
import type { Access } from '../pacing/with-token.ts';
import type { Queues } from '../queue/queues.ts';
import type { LibraryClient } from '../source/client.ts';
import type { Storage } from '../storage/storage.ts';
import type { Endpoint } from '../store/events/endpoints.ts';
import type { Store } from '../store/store.ts';
import type { SyncIntervals } from '../store/syncs/schedule.ts';
import type { Permissions } from './operators/permissions.ts';

/** The dependencies of the operations. Each picks what it uses. Settings have the names of the config. */
export interface OperationsDeps {
  store: Store;
  storage: Storage;
  queues: Queues;
  sealer: Sealer;
  tokens: Tokens;
  /** Why the bucket is unavailable; null: it is available. */
  bucketTrouble: () => Promise<string | null>;
  /** Bytes per second that this process downloads now. */
  traffic: () => number;
  /** The keys that sign reports; undefined: none does. */
  signingKeys: SigningKeys | undefined;
  /** Milliseconds between restore drills; undefined: only on request. */
  drillInterval: number | undefined;
  /** How often each file is read back, in ms (undefined: never), and how fast at most. */
  scrub: { cycle: number | undefined; bandwidth: number };
  transfer: {
    /** BANDWIDTH_LIMIT of this process. */
    bandwidth: Bandwidth | undefined;
    /** Maximum assets of a connection in flight. */
    perConnection: number;
  };
  /** Sends a test message to a webhook endpoint. Undefined: this process does not have its address. */
  sendTestWebhook: (
    endpoint: Pick<Endpoint, 'id' | 'sealed'>,
  ) => Promise<{ delivered: boolean; reason?: string } | undefined>;
  publicUrl: string;
  /** What each operator may do. */
  permissions: Permissions;
  signIn: {
    /** Sessions end when they are not used for this long, in ms. */
    sessionIdle: number;
  };
  /** Origins of sites that connect links may send users to. */
  returnOrigins: readonly string[];
  /** How often connections are synced that have no setting of their own. */
  sync: SyncIntervals;
  /** GONE_RETENTION in ms; infinite: forever. */
  goneRetention: number;
  /** The filters of connections that have none of their own. */
  filters: FilterDefaults;
  log: Log;
  client: LibraryClient;
  /** Calls the API for a connection, within its adaptive limit. */
  withToken: Access;
  /** `search`: whether the words of transcripts can be searched. */
  transcripts: { mirror: boolean; search: boolean };
  thumbnails: { mirror: boolean };
  /** How long superseded files are kept, in ms. */
  keepVersions: number;
}
