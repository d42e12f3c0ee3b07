import { RetryLater } from '../errors.ts';
import type { Tokens } from '../oauth/tokens.ts';
import type { LibraryClient } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import type { Grant } from '../store/database/schema.ts';
import type { Limiter } from './adaptive-concurrency.ts';

export type Access = ReturnType<typeof createAccess>;

/** How long a connection waits whose fresh tokens are refused. */
const refusedMs = 30_000;

/** How long `/me` has to tell whose fault a refusal is; without an answer it is the connection's. */
const meMs = 20_000;

/**
 * Calls the API for a connection. A token that the service refuses before its time is refreshed, once. If the new one is
 * refused, too, `client` asks for /me: where that is given, the refusal is about what was asked for, and no reason for all
 * else to wait (the spec, section 7, does not say what 401 stands for besides). With a limiter, what the service answers makes
 * the connection slower or faster. `grant`: what the records have just said of it.
 */
export function createAccess(tokens: Tokens, limiter?: Limiter, client?: Pick<LibraryClient, 'me'>) {
  const isTaken = async (token: string) =>
    client?.me({ token, signal: AbortSignal.timeout(meMs) }).then(
      () => true,
      () => false,
    );
  return async function withToken<T>(
    connectionId: string,
    ask: (token: string) => Promise<T>,
    grant?: Grant,
  ): Promise<T> {
    const call = (value: string) => (limiter ? limiter.watch(connectionId, () => ask(value)) : ask(value));
    const token = await tokens.getAccessToken(connectionId, undefined, grant);
    try {
      return await call(token.value);
    } catch (error) {
      if (!(error instanceof HttpError && error.status === 401)) throw error;
      const next = await tokens.getAccessToken(connectionId, token.version);
      try {
        return await call(next.value);
      } catch (again) {
        if (!(again instanceof HttpError && again.status === 401) || (await isTaken(next.value))) throw again;
        // No reason to spend one token after another.
        const waitMs = refusedMs * (1 + Math.random() / 4);
        throw new RetryLater('the service refuses an access token that it gave just now', waitMs, {
          scope: 'connection',
          cause: again,
        });
      }
    }
  };
}
