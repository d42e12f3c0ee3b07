import { RetryLater } from '../floor/errors.ts';
import type { Tokens } from '../oauth/tokens.ts';
import type { LibraryClient } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import type { StoredTokens } from '../store/database/schema.ts';
import type { Limiter } from './adaptive-concurrency.ts';

export type Access = ReturnType<typeof createAccess>;

interface CallOptions {
  /** The tokens of the connection, if just read. */
  stored?: StoredTokens | undefined;
  /** How long it takes tells how busy the library is. */
  timed?: boolean;
}

/** How long a connection waits after a fresh token was refused. */
const refusedMs = 30_000;

/** Time limit of the `/me` request, which shows whether the token itself is refused. */
const meMs = 20_000;

/**
 * Calls the API for a connection. A token that is refused before it expires is refreshed once. If the new one is refused too,
 * `client` requests /me: if that is answered, only this request was refused, and the connection need not wait (spec, section
 * 7, names no other meaning of 401). `limiter` adapts to the answers.
 */
export function createAccess(tokens: Tokens, limiter?: Limiter, client?: Pick<LibraryClient, 'me'>) {
  const isAccepted = async (token: string) =>
    client?.me({ token, signal: AbortSignal.timeout(meMs) }).then(
      () => true,
      () => false,
    );
  return async function withToken<T>(
    connectionId: string,
    call: (token: string) => Promise<T>,
    { stored, timed = false }: CallOptions = {},
  ): Promise<T> {
    const waitedMs = (await limiter?.waitForRate(connectionId)) ?? 0;
    const limited = (token: string, waited = 0) =>
      limiter ? limiter.watch(connectionId, timed ? waited : undefined, () => call(token)) : call(token);
    const token = await tokens.getAccessToken(connectionId, undefined, stored);
    try {
      return await limited(token.value, waitedMs);
    } catch (error) {
      if (!(error instanceof HttpError && error.status === 401)) throw error;
      const next = await tokens.getAccessToken(connectionId, token.version);
      try {
        return await limited(next.value);
      } catch (again) {
        if (!(again instanceof HttpError && again.status === 401) || (await isAccepted(next.value))) throw again;
        // Without a wait, each request would use up a new token.
        const waitMs = refusedMs * (1 + Math.random() / 4);
        throw new RetryLater({ code: 'new_token_refused' }, waitMs, { scope: 'connection', cause: again });
      }
    }
  };
}
