import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Disconnected, RetryLater, reasonOf } from '../floor/errors.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { reasonFields } from '../floor/reasons.ts';
import type { StoredTokens } from '../store/database/schema.ts';
import { openPair, purposeOf, sealPair, type TokenPair } from './pair.ts';
import { type KeyRotation, rotateKeys } from './reencrypt-tokens.ts';
import {
  type AccessToken,
  type ConsentPair,
  type RefreshDeps,
  refreshConsent,
  refreshPair,
  revoke,
} from './refresh.ts';

/** How long the refresh lease of a dead process lasts: a running one renews it while a refresh may still be answered. */
const defaultLeaseMs = 45_000;

export type TokensOptions = Omit<RefreshDeps, 'failures' | 'leaseMs'> & {
  /** Names this process in leases. */
  instance: string;
  leaseMs?: number;
};

/**
 * Access tokens of connections, refreshed before they expire: one refresh at a time per connection across all processes.
 * A new pair is saved before it is used. A refresh is never aborted, not even by a shutdown.
 */
export class Tokens {
  readonly #deps: RefreshDeps;
  readonly #instance: string;
  /** One call per connection does the work; all others wait for its token. */
  readonly #inFlight = new Map<string, Promise<AccessToken>>();
  /** Refreshes of consents, until the new pair is saved. */
  readonly #ofConsents = new Set<Promise<unknown>>();
  #isEnding = false;

  constructor({ instance, ...deps }: TokensOptions) {
    this.#deps = { leaseMs: defaultLeaseMs, ...deps, failures: new Map() };
    this.#instance = instance;
  }

  /**
   * A token that works now and for a while. `stale`: the version of one that the library has just refused; `stored`: the
   * tokens of the connection, if they were just read.
   * @throws Disconnected when the connection has ended; RetryLater when the library gives no token for now
   */
  async getAccessToken(connectionId: string, stale?: number, stored?: StoredTokens): Promise<AccessToken> {
    for (let other = this.#inFlight.get(connectionId); other; other = this.#inFlight.get(connectionId)) {
      const token = await other;
      if (token.version !== stale) return token;
    }
    const work = this.#current(connectionId, stale, stored).finally(() => this.#inFlight.delete(connectionId));
    this.#inFlight.set(connectionId, work);
    return work;
  }

  /** Refreshes the pair of a consent, and saves it before this returns. Throws as `refreshConsent` does. */
  async refreshConsent<T>(consent: ConsentPair<T>): Promise<T> {
    this.#throwIfEnding();
    const work = refreshConsent(this.#deps, consent).finally(() => this.#ofConsents.delete(work));
    this.#ofConsents.add(work);
    return work;
  }

  seal(userId: string, tokens: TokenPair): string {
    return sealPair(this.#deps.sealer, purposeOf.user(userId), tokens);
  }

  async rotateKeys(): Promise<KeyRotation> {
    const done = await rotateKeys(this.#deps.store, this.#deps.sealer);
    const { length: unreadable } = done.unreadable;
    this.#deps.log.info(
      { event: 'key.rotated', ...done, unreadable },
      'tokens and secrets encrypted with the first key',
    );
    return done;
  }

  /** Ends the connection here, and at the library if that can be reached. `ended`: it had not ended before. */
  async disconnect(connectionId: string): Promise<{ ended: boolean; revoked: boolean }> {
    const { store, sealer, log } = this.#deps;
    const reason: Reason = { code: 'disconnected_by_operator' };
    const ended = await store.connections.end(connectionId, reason);
    if (!ended) return { ended: false, revoked: false };
    log.warn({ event: 'connection.disconnected', connectionId, ...reasonFields(reason) }, 'connection disconnected');
    try {
      const { refreshToken } = openPair(sealer, purposeOf.user(ended.userId), ended.tokens!);
      return { ended: true, revoked: await revoke(this.#deps, connectionId, refreshToken) };
    } catch (err) {
      log.warn({ event: 'grant.revoke_failed', connectionId, err }, 'grant not revoked at the library');
      return { ended: true, revoked: false };
    }
  }

  /** Begins no more refreshes, and resolves when none is running: the process may then exit. */
  async end(): Promise<void> {
    this.#isEnding = true;
    while (this.#inFlight.size + this.#ofConsents.size > 0)
      await Promise.allSettled([...this.#inFlight.values(), ...this.#ofConsents]);
  }

  #throwIfEnding(): void {
    if (this.#isEnding) throw new RetryLater({ code: 'shutting_down' }, 0);
  }

  async #read(connectionId: string, known?: StoredTokens) {
    const { store, sealer } = this.#deps;
    const connection = known ?? (await store.connections.storedTokens(connectionId));
    if (!connection || connection.status === 'disconnected' || !connection.tokens) {
      throw new Disconnected(`connection ${connectionId} is disconnected`);
    }
    try {
      return { connection, ...openPair(sealer, purposeOf.user(connection.userId), connection.tokens) };
    } catch (cause) {
      // The connection and its assets wait until the key is back; a pair that cannot be read is kept.
      const reason: Reason = { code: 'tokens_unreadable', connectionId, error: reasonOf(cause) };
      throw new RetryLater(reason, 60_000, { scope: 'connection', cause });
    }
  }

  async #current(
    connectionId: string,
    stale: number | undefined,
    known: StoredTokens | undefined,
  ): Promise<AccessToken> {
    const { store, leaseMs } = this.#deps;
    for (let stored = known; ; stored = undefined) {
      const { connection, accessToken, refreshToken, clientId } = await this.#read(connectionId, stored);
      if (connection.delayMs > 0) throw new RetryLater({ code: 'connection_waits' }, connection.delayMs);
      const { tokenVersion: version, userId } = connection;
      if (connection.isFresh && version !== stale) return { value: accessToken, version };

      this.#throwIfEnding();
      const owner = `${this.#instance} ${randomUUID()}`;
      const lease = await store.connections.leaseRefresh(connectionId, version, owner, leaseMs);
      if (!lease) {
        // Another process refreshes the token, or has just done so: read it again.
        await sleep(100 + Math.random() * 150);
        continue;
      }
      const { takenOver, unanswered } = lease;
      const lostAnswer = unanswered || takenOver;
      const pair = { connectionId, userId, version, refreshToken, clientId, owner, takenOver, lostAnswer };
      const refreshed = await refreshPair(this.#deps, pair);
      if (refreshed) return refreshed;
    }
  }
}
