import type { Accounts } from './accounts.ts';
import type { Catalogue } from './catalogue.ts';
import type { Clock } from './clock.ts';
import type { Store } from './database/store.ts';
import type { Faults } from './faults/rules.ts';
import type { Connections } from './oauth/connections.ts';
import type { RequestLog } from './requests.ts';

/** What every endpoint works with. */
export type Service = {
  clock: Clock;
  store: Store;
  accounts: Accounts;
  connections: Connections;
  catalogue: Catalogue;
  faults: Faults;
  requests: RequestLog;
  settings: Settings;
  /** Signs links and form tokens. */
  key: string;
  /** {base_url} and {app_url} of the spec, without a trailing slash. Empty until the server listens. */
  addresses: { api: string; app: string };
  log: (line: object) => void;
};

export type Settings = {
  autoConsent: boolean;
  /** Milliseconds from the upload of a video until it is ready. */
  transcodeDelay: number;
  /** Milliseconds from an upload until its transcript exists. */
  transcriptDelay: number;
};
