import type { Changes, Store } from '../database/store.ts';
import type { Code, Connection } from '../database/tables.ts';
import { digest, newId, newSecret } from '../secrets.ts';

/** Section 2.3: seconds until an access token expires. */
export const TOKEN_LIFETIME = 3600;

export type Tokens = { accessToken: string; refreshToken: string };

/** Connections with their codes and tokens (section 3.2), which are stored as hashes. */
export class Connections {
  readonly #store: Store;
  readonly #now: () => number;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  issueCode(code: Code): Promise<string> {
    return this.#store.change((changes) => {
      this.#deleteExpired(changes);
      const secret = newSecret('svcc_');
      changes.put('codes', { hash: digest(secret), ...code, connectionId: null });
      return secret;
    });
  }

  /** A code that has not expired, used or not. */
  code(secret: string): (Code & { hash: string; connectionId: string | null }) | undefined {
    const code = this.#store.rows('codes').get(digest(secret));
    return code && code.expiresAt > this.#now() ? code : undefined;
  }

  /** Uses a code. A second use gets no tokens and ends the connection of the first (RFC 6749, 4.1.2). */
  exchange(secret: string): Promise<Tokens | undefined> {
    return this.#store.change((changes) => {
      const code = this.code(secret);
      if (!code) return undefined;
      if (code.connectionId) {
        this.#end(changes, [code.connectionId]);
        return undefined;
      }
      const { userId, clientId, companies } = code;
      const connection = { id: newId('con'), userId, clientId, companies, since: this.#now() };
      changes.put('connections', connection);
      changes.put('codes', { ...code, connectionId: connection.id });
      return this.#issueTokens(changes, connection.id, null);
    });
  }

  /** The connection of a refresh token that was not used yet. */
  ofRefreshToken(token: string): Connection | undefined {
    const stored = this.#store.rows('refreshTokens').get(digest(token));
    return stored && !stored.used ? this.#connection(stored) : undefined;
  }

  /** Replaces a refresh token. Undefined if it is unknown or was used. */
  rotate(token: string): Promise<Tokens | undefined> {
    return this.#store.change((changes) => {
      const stored = this.#store.rows('refreshTokens').get(digest(token));
      if (!stored || stored.used) return undefined;
      this.#deleteExpired(changes);
      if (stored.replaces) changes.delete('refreshTokens', stored.replaces);
      changes.put('refreshTokens', { ...stored, used: true, replaces: null });
      return this.#issueTokens(changes, stored.connectionId, stored.hash);
    });
  }

  ofAccessToken(token: string): Connection | undefined {
    const stored = this.#store.rows('accessTokens').get(digest(token));
    return stored && stored.expiresAt > this.#now() ? this.#connection(stored) : undefined;
  }

  ofUser(userId: string): Connection[] {
    return [...this.#store.rows('connections').values()].filter((connection) => connection.userId === userId);
  }

  ofApp(clientId: string): Connection[] {
    return [...this.#store.rows('connections').values()].filter((connection) => connection.clientId === clientId);
  }

  end(connections: Connection[]): Promise<void> {
    const ids = connections.map(({ id }) => id);
    return this.#store.change((changes) => this.#end(changes, ids));
  }

  /** Ends the connection of a refresh token, even if the token was just replaced. */
  revoke(token: string, clientId: string): Promise<void> {
    return this.#store.change((changes) => {
      const stored = this.#store.rows('refreshTokens').get(digest(token));
      const connection = stored && this.#connection(stored);
      if (connection?.clientId === clientId) this.#end(changes, [connection.id]);
    });
  }

  /** Expires the access tokens of one user or of all, and returns how many. */
  expireAccessTokens(userId: string | undefined): Promise<number> {
    return this.#store.change((changes) => {
      const expired = [...this.#store.rows('accessTokens').values()].filter(
        (token) => userId === undefined || this.#connection(token)?.userId === userId,
      );
      changes.delete('accessTokens', ...expired.map(({ hash }) => hash));
      return expired.length;
    });
  }

  countRefreshTokens(userId: string): number {
    const tokens = [...this.#store.rows('refreshTokens').values()];
    return tokens.filter((token) => !token.used && this.#connection(token)?.userId === userId).length;
  }

  #connection({ connectionId }: { connectionId: string }): Connection | undefined {
    return this.#store.rows('connections').get(connectionId);
  }

  #issueTokens(changes: Changes, connectionId: string, replaces: string | null): Tokens {
    const tokens = { accessToken: newSecret('svca_'), refreshToken: newSecret('svcr_') };
    const expiresAt = this.#now() + TOKEN_LIFETIME * 1000;
    changes.put('accessTokens', { hash: digest(tokens.accessToken), connectionId, expiresAt });
    changes.put('refreshTokens', { hash: digest(tokens.refreshToken), connectionId, used: false, replaces });
    return tokens;
  }

  #end(changes: Changes, ids: string[]): void {
    changes.delete('connections', ...ids);
    for (const table of ['accessTokens', 'refreshTokens'] as const) {
      for (const { hash, connectionId } of this.#store.rows(table).values()) {
        if (ids.includes(connectionId)) changes.delete(table, hash);
      }
    }
  }

  /** Rows are in the order of their creation, so this stops at the first that has not expired. */
  #deleteExpired(changes: Changes): void {
    for (const table of ['accessTokens', 'codes'] as const) {
      for (const { hash, expiresAt } of this.#store.rows(table).values()) {
        if (expiresAt > this.#now()) break;
        changes.delete(table, hash);
      }
    }
  }
}
