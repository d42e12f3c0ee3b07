import type { Tokens } from '../oauth/tokens.ts';
import { HttpError } from '../source/http.ts';

export type Access = ReturnType<typeof createAccess>;

/** Calls the API for a connection. A token that the service refuses before its time is refreshed, once. */
export function createAccess(tokens: Tokens) {
  return async function withToken<T>(connectionId: string, call: (token: string) => Promise<T>): Promise<T> {
    const token = await tokens.getAccessToken(connectionId);
    try {
      return await call(token.value);
    } catch (error) {
      if (!(error instanceof HttpError && error.status === 401)) throw error;
      const next = await tokens.getAccessToken(connectionId, token.version);
      return await call(next.value);
    }
  };
}
