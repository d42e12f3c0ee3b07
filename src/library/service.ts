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
  /** {base_url} and {app_url} of the spec, without a slash at the end; known once the server listens. */
  addresses: { api: string; app: string };
  log: (line: object) => void;
};

export type Settings = {
  autoConsent: boolean;
  /** Seconds an access token works. */
  tokenLifetime: number;
  /** Seconds a download link works. */
  linkLifetime: number;
  /** Milliseconds a video is `processing` after its upload. */
  transcodeDelay: number;
  /** Milliseconds from upload to transcript. */
  transcriptDelay: number;
};

/** An answer that is an error, in the shape {error, message}. */
export class Refusal extends Error {
  readonly status: number;
  readonly code: string;
  readonly headers: Record<string, string>;

  constructor(status: number, code: string, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}
