import { digest, newId, newSecret } from './secrets.ts';

/** A user's grant to an app (section 3.2). */
export type Connection = {
  id: string;
  userId: string;
  clientId: string;
  scope: string;
  /** The companies picked on the consent page, or every company the user can read now and later. */
  companies: string[] | 'all';
  since: number;
  ended: boolean;
};

export type Code = {
  clientId: string;
  userId: string;
  redirectUri: string;
  challenge: string;
  companies: string[] | 'all';
  expiresAt: number;
};

export type Tokens = { accessToken: string; refreshToken: string; expiresIn: number };

/** Codes, tokens and the connections behind them. Only hashes of codes and tokens are kept. */
export type Connections = {
  issueCode(code: Code): Promise<string>;
  /** Looks a code up without using it. */
  code(code: string): Promise<Code | undefined>;
  /** Uses a code: true once. A second use ends the connection that came of the first (RFC 6749, 4.1.2). */
  useCode(code: string, connection: Connection): Promise<boolean>;
  issueTokens(connectionId: string, lifetime: number): Promise<Tokens>;
  /** The live connection of a refresh token that was not yet used. */
  ofRefreshToken(token: string): Promise<Connection | undefined>;
  /** Replaces a refresh token: undefined if another request was first. */
  rotate(token: string, lifetime: number): Promise<Tokens | undefined>;
  ofAccessToken(token: string): Promise<Connection | undefined>;
  /** The live connections of a user. */
  of(userId: string): Promise<Connection[]>;
  end(connectionId: string): Promise<void>;
  /** Ends the connection of a refresh token, also of one that has been replaced. */
  revoke(token: string, clientId: string): Promise<void>;
  expireAccessTokens(userId: string | null): Promise<number>;
  /** How many refresh tokens of a user would work. */
  liveRefreshTokens(userId: string): Promise<number>;
};

export function newConnection(code: Code, now: number): Connection {
  return {
    id: newId('con'),
    userId: code.userId,
    clientId: code.clientId,
    scope: 'assets:read',
    companies: code.companies,
    since: now,
    ended: false,
  };
}

export function createConnections(now: () => number): Connections {
  const codes = new Map<string, Code & { connectionId: string | null }>();
  const connections = new Map<string, Connection>();
  const access = new Map<string, { connectionId: string; expiresAt: number }>();
  const refresh = new Map<string, { connectionId: string; used: boolean }>();

  function live(connectionId: string | undefined): Connection | undefined {
    const connection = connections.get(connectionId ?? '');
    return connection && !connection.ended ? connection : undefined;
  }

  function issueTokens(connectionId: string, lifetime: number): Tokens {
    const tokens = { accessToken: newSecret('svca_'), refreshToken: newSecret('svcr_'), expiresIn: lifetime };
    access.set(digest(tokens.accessToken), { connectionId, expiresAt: now() + lifetime * 1000 });
    refresh.set(digest(tokens.refreshToken), { connectionId, used: false });
    return tokens;
  }

  function end(connectionId: string): void {
    const connection = connections.get(connectionId);
    if (connection) connection.ended = true;
    for (const [hash, token] of access) if (token.connectionId === connectionId) access.delete(hash);
    for (const [hash, token] of refresh) if (token.connectionId === connectionId) refresh.delete(hash);
  }

  function forgetExpired(): void {
    for (const [hash, token] of access) if (token.expiresAt <= now()) access.delete(hash);
    for (const [hash, code] of codes) if (code.expiresAt <= now()) codes.delete(hash);
  }

  return {
    async issueCode(code) {
      forgetExpired();
      const secret = newSecret('svcc_');
      codes.set(digest(secret), { ...code, connectionId: null });
      return secret;
    },

    async code(secret) {
      const code = codes.get(digest(secret));
      return code && code.expiresAt > now() ? code : undefined;
    },

    async useCode(secret, connection) {
      const code = codes.get(digest(secret));
      if (!code || code.expiresAt <= now()) return false;
      if (code.connectionId) {
        end(code.connectionId);
        return false;
      }
      code.connectionId = connection.id;
      connections.set(connection.id, connection);
      return true;
    },

    issueTokens: async (connectionId, lifetime) => issueTokens(connectionId, lifetime),

    async ofRefreshToken(token) {
      const found = refresh.get(digest(token));
      return found && !found.used ? live(found.connectionId) : undefined;
    },

    async rotate(token, lifetime) {
      const found = refresh.get(digest(token));
      if (!found || found.used || !live(found.connectionId)) return undefined;
      forgetExpired();
      found.used = true;
      return issueTokens(found.connectionId, lifetime);
    },

    async ofAccessToken(token) {
      const found = access.get(digest(token));
      return found && found.expiresAt > now() ? live(found.connectionId) : undefined;
    },

    of: async (userId) =>
      [...connections.values()].filter((connection) => connection.userId === userId && !connection.ended),

    end: async (connectionId) => end(connectionId),

    async revoke(token, clientId) {
      const connection = live(refresh.get(digest(token))?.connectionId);
      if (connection?.clientId === clientId) end(connection.id);
    },

    async expireAccessTokens(userId) {
      let expired = 0;
      for (const [hash, token] of access) {
        if (userId !== null && live(token.connectionId)?.userId !== userId) continue;
        access.delete(hash);
        expired++;
      }
      return expired;
    },

    async liveRefreshTokens(userId) {
      return [...refresh.values()].filter((token) => !token.used && live(token.connectionId)?.userId === userId).length;
    },
  };
}
