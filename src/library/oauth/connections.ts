import type { Changes, Store } from '../database/store.ts';
import type { Code, Connection } from '../database/tables.ts';
import { digest, newId, newSecret } from '../secrets.ts';

export type { Code, Connection };

export type Tokens = { accessToken: string; refreshToken: string; expiresIn: number };

/** Codes, tokens and the connections behind them (section 3.2). Only hashes of codes and tokens are kept. */
export type Connections = {
  issueCode(code: Code): Promise<string>;
  /** Looks a code up without using it. */
  code(code: string): Code | undefined;
  /** Uses a code: tokens once. A second use ends the connection that came of the first (RFC 6749, 4.1.2). */
  exchange(code: string, lifetime: number): Promise<Tokens | undefined>;
  /** The live connection of a refresh token that was not yet used. */
  ofRefreshToken(token: string): Connection | undefined;
  /** Replaces a refresh token: undefined if another request was first. */
  rotate(token: string, lifetime: number): Promise<Tokens | undefined>;
  ofAccessToken(token: string): Connection | undefined;
  /** The live connections of a user. */
  of(userId: string): Connection[];
  /** The live connections to an app. */
  to(clientId: string): Connection[];
  end(...connectionIds: string[]): Promise<void>;
  /** Ends the connection of a refresh token, also of one that has just been replaced. */
  revoke(token: string, clientId: string): Promise<void>;
  expireAccessTokens(userId: string | null): Promise<number>;
  /** How many refresh tokens of a user would work. */
  liveRefreshTokens(userId: string): number;
};

export function createConnections(store: Store, now: () => number): Connections {
  const codes = store.rows('codes');
  const connections = store.rows('connections');
  const access = store.rows('accessTokens');
  const refresh = store.rows('refreshTokens');

  function issueTokens(changes: Changes, connectionId: string, replaces: string | null, lifetime: number): Tokens {
    const tokens = { accessToken: newSecret('svca_'), refreshToken: newSecret('svcr_'), expiresIn: lifetime };
    const expiresAt = now() + lifetime * 1000;
    changes.put('accessTokens', { hash: digest(tokens.accessToken), connectionId, expiresAt });
    changes.put('refreshTokens', { hash: digest(tokens.refreshToken), connectionId, used: false, replaces });
    return tokens;
  }

  function end(changes: Changes, ids: string[]): void {
    changes.delete('connections', ...ids);
    for (const table of ['accessTokens', 'refreshTokens'] as const) {
      for (const { hash, connectionId } of store.rows(table).values()) {
        if (ids.includes(connectionId)) changes.delete(table, hash);
      }
    }
  }

  function forgetExpired(changes: Changes): void {
    // The oldest come first, so that this looks at no more than it forgets; one that is missed is forgotten later.
    for (const table of ['accessTokens', 'codes'] as const) {
      for (const { hash, expiresAt } of store.rows(table).values()) {
        if (expiresAt > now()) break;
        changes.delete(table, hash);
      }
    }
  }

  return {
    issueCode: (code) =>
      store.change((changes) => {
        forgetExpired(changes);
        const secret = newSecret('svcc_');
        changes.put('codes', { hash: digest(secret), ...code, connectionId: null });
        return secret;
      }),

    code(secret) {
      const code = codes.get(digest(secret));
      return code && code.expiresAt > now() ? code : undefined;
    },

    exchange: (secret, lifetime) =>
      store.change((changes) => {
        const code = codes.get(digest(secret));
        if (!code || code.expiresAt <= now()) return undefined;
        if (code.connectionId) {
          end(changes, [code.connectionId]);
          return undefined;
        }
        const { userId, clientId, companies } = code;
        const connection = { id: newId('con'), userId, clientId, scope: 'assets:read', companies, since: now() };
        changes.put('connections', connection);
        changes.put('codes', { ...code, connectionId: connection.id });
        return issueTokens(changes, connection.id, null, lifetime);
      }),

    ofRefreshToken(token) {
      const found = refresh.get(digest(token));
      return found && !found.used ? connections.get(found.connectionId) : undefined;
    },

    rotate: (token, lifetime) =>
      store.change((changes) => {
        const found = refresh.get(digest(token));
        if (!found || found.used) return undefined;
        forgetExpired(changes);
        if (found.replaces) changes.delete('refreshTokens', found.replaces);
        changes.put('refreshTokens', { ...found, used: true, replaces: null });
        return issueTokens(changes, found.connectionId, found.hash, lifetime);
      }),

    ofAccessToken(token) {
      const found = access.get(digest(token));
      return found && found.expiresAt > now() ? connections.get(found.connectionId) : undefined;
    },

    of: (userId) => [...connections.values()].filter((connection) => connection.userId === userId),
    to: (clientId) => [...connections.values()].filter((connection) => connection.clientId === clientId),

    end: (...connectionIds) => store.change((changes) => end(changes, connectionIds)),

    revoke: (token, clientId) =>
      store.change((changes) => {
        const connection = connections.get(refresh.get(digest(token))?.connectionId ?? '');
        if (connection?.clientId === clientId) end(changes, [connection.id]);
      }),

    expireAccessTokens: (userId) =>
      store.change((changes) => {
        const expired = [...access.values()].filter(
          ({ connectionId }) => userId === null || connections.get(connectionId)?.userId === userId,
        );
        changes.delete('accessTokens', ...expired.map(({ hash }) => hash));
        return expired.length;
      }),

    liveRefreshTokens: (userId) =>
      [...refresh.values()].filter(
        ({ used, connectionId }) => !used && connections.get(connectionId)?.userId === userId,
      ).length,
  };
}
