import type { Log } from '../../floor/log.ts';
import type { Sealer } from '../../oauth/seal.ts';
import type { Operations } from '../../operations/operations.ts';
import type { AccessDeps } from './access.ts';
import type { Provider } from './provider.ts';
import type { Sessions } from './sessions.ts';
import type { TokenCheck } from './token-check.ts';

export interface SignInDeps extends AccessDeps {
  sessions: Sessions;
  checkToken: TokenCheck;
  /** Undefined: operators sign in with ADMIN_TOKEN only. */
  provider: Provider | undefined;
  signIn: { token: boolean };
  sealer: Sealer;
  operations: Operations;
  log: Log;
}
