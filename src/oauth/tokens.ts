import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { Disconnected, RetryLater, reasonOf } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Grant as StoredGrant } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { type Grant, type OAuthClient, OAuthError, Unanswered } from './client.ts';
import type { Sealer } from './seal.ts';

export type Tokens = ReturnType<typeof createTokens>;

/** An access token, and which pair it belongs to. */
export interface AccessToken {
  value: string;
  version: number;
}

const pair = z.object({ accessToken: z.string(), refreshToken: z.string() });
const purposeFor = (userId: string) => `tokens of ${userId}`;

/** Of a process that has died; while a refresh may still be answered, its lease is renewed. */
const defaultLeaseMs = 45_000;

/** `refused`: the connection has ended. `unanswered`: it is unknown whether the token was rotated. `failed`: it was not. */
type RefreshResult = 'refreshed' | 'refused' | 'unanswered' | 'failed';

/**
 * Access tokens of connections, refreshed before they expire: one refresh at a time per connection across all processes.
 * The new pair is saved before it is used. A refresh, once begun, is never broken off, not by a shutdown either.
 */
export function createTokens(options: {
  store: Store;
  client: OAuthClient;
  sealer: Sealer;
  log: Log;
  instance: string;
  leaseMs?: number;
  /** Called with what came of each refresh. */
  onRefresh?: (result: RefreshResult) => void;
}) {
  const { client, sealer, log, leaseMs = defaultLeaseMs } = options;
  const { connections } = options.store;
  const inHand = new Map<string, Promise<AccessToken>>();
  /** Refreshes of a connection that failed in a row. */
  const failures = new Map<string, number>();

  async function read(connectionId: string, known?: StoredGrant) {
    const connection = known ?? (await connections.grant(connectionId));
    if (!connection || connection.status === 'disconnected' || !connection.tokens) {
      throw new Disconnected(`connection ${connectionId} is disconnected`);
    }
    try {
      const { accessToken, refreshToken } = pair.parse(
        JSON.parse(sealer.open(purposeFor(connection.userId), connection.tokens)),
      );
      return { connection, accessToken, refreshToken };
    } catch (cause) {
      // The connection waits, and its assets with it, until the key is back; nothing that cannot be read is thrown away.
      throw new RetryLater(`connection ${connectionId}: ${reasonOf(cause)}`, 60_000, { scope: 'connection', cause });
    }
  }

  async function current(
    connectionId: string,
    stale: number | undefined,
    known: StoredGrant | undefined,
  ): Promise<AccessToken> {
    for (let grant = known; ; grant = undefined) {
      const { connection, accessToken, refreshToken } = await read(connectionId, grant);
      // What is in hand of a connection that waits, in whichever process, asks for nothing more.
      if (connection.parkedMs > 0) throw new RetryLater('its connection waits', connection.parkedMs);
      const version = connection.tokenVersion;
      if (connection.isFresh && version !== stale) return { value: accessToken, version };

      const owner = `${options.instance} ${randomUUID()}`;
      const lease = await connections.leaseRefresh(connectionId, version, owner, leaseMs);
      if (!lease) {
        // Another process is at it, or has just done it: read again.
        await sleep(100 + Math.random() * 150);
        continue;
      }
      const renewed = await refresh({
        connectionId,
        userId: connection.userId,
        version,
        refreshToken,
        owner,
        lostAnswer: lease.unanswered || lease.takenOver,
        takenOver: lease.takenOver,
      });
      if (renewed) return renewed;
    }
  }

  /** Undefined: the pair was replaced by another meanwhile; read again. */
  async function refresh(at: {
    connectionId: string;
    userId: string;
    version: number;
    refreshToken: string;
    owner: string;
    lostAnswer: boolean;
    takenOver: boolean;
  }): Promise<AccessToken | undefined> {
    const { connectionId, version } = at;
    let grant: Grant;
    const heartbeat = setInterval(
      () => void connections.renewRefresh(connectionId, at.owner, leaseMs).catch(() => {}),
      leaseMs / 3,
    );
    try {
      grant = await client.refresh(at.refreshToken);
      options.onRefresh?.('refreshed');
    } catch (error) {
      if (error instanceof OAuthError && error.invalidGrant) {
        // Another pair has taken its place: nothing is wrong.
        if (await replaced(at)) return undefined;
        options.onRefresh?.('refused');
        const reason = at.lostAnswer
          ? 'the answer to an earlier token refresh was lost, and the service no longer takes the old token; connect again'
          : 'the user disconnected the app or lost access at the service; connect again';
        // After a reconnect the answer is about an earlier grant; with another lease holder, about a token that it has replaced.
        if (!(await connections.end(connectionId, reason, { tokenVersion: version, owner: at.owner }))) {
          log.info({ connectionId }, 'refused token refresh ignored');
          return undefined;
        }
        log.warn({ connectionId, reason }, 'connection disconnected');
        // The service may still hold a grant for the pair that was lost, and would for ever: nobody has its tokens.
        if (at.lostAnswer) await revoke(connectionId, at.refreshToken);
        throw new Disconnected(reason);
      }
      options.onRefresh?.(error instanceof Unanswered ? 'unanswered' : 'failed');
      await connections
        .releaseRefresh(connectionId, at.owner, { unanswered: error instanceof Unanswered || at.takenOver })
        .catch((err) =>
          log.warn({ connectionId, err }, 'the lease for refreshing could not be given back; it ends by itself'),
        );
      if (error instanceof Unanswered) log.warn({ connectionId, err: error }, 'a token refresh was not answered');
      throw comeBack(connectionId, error);
    } finally {
      clearInterval(heartbeat);
    }
    failures.delete(connectionId);
    const tokens = seal(at.userId, {
      accessToken: grant.accessToken,
      refreshToken: grant.refreshToken ?? at.refreshToken,
    });
    const expiresAt = performance.now() + grant.accessMs;
    const saved = await untilSaved(
      () => connections.saveRefreshed(connectionId, version, tokens, expiresAt - performance.now()),
      connectionId,
    );
    if (!saved) {
      await revokeIfEnded(connectionId, grant.refreshToken);
      return undefined;
    }
    log.debug({ connectionId }, 'access token refreshed');
    return { value: grant.accessToken, version: version + 1 };
  }

  /** The token endpoint's trouble is nobody's fault here: everything of the connection waits, and spends no attempt. */
  function comeBack(connectionId: string, cause: unknown): RetryLater {
    const before = failures.get(connectionId) ?? 0;
    failures.set(connectionId, before + 1);
    const wait = Math.min(2000 * 2 ** before, 120_000) * (1 + Math.random() / 4);
    const asked = cause instanceof OAuthError ? cause.waitMs : undefined;
    return new RetryLater('no access token for now', asked ?? wait, { scope: 'connection', cause });
  }

  /** What was revoked when the connection was ended is the token before this one. */
  async function revokeIfEnded(connectionId: string, refreshToken: string | undefined): Promise<void> {
    const connection = await connections.get(connectionId);
    if (refreshToken !== undefined && connection?.status === 'disconnected') await revoke(connectionId, refreshToken);
  }

  /** False: the service could not be told. */
  async function revoke(connectionId: string, refreshToken: string): Promise<boolean> {
    try {
      await client.revoke(refreshToken);
      return true;
    } catch (err) {
      log.warn({ connectionId, err }, 'the grant could not be revoked at the service');
      return false;
    }
  }

  /**
   * After `invalid_grant`: whether another pair is in place. One whose holder's lease ran out may still be on its way
   * into the database, so that gets the time of a lease.
   */
  async function replaced(at: { connectionId: string; version: number; takenOver: boolean }): Promise<boolean> {
    const deadline = performance.now() + (at.takenOver ? leaseMs : 0);
    for (;;) {
      const connection = await connections.get(at.connectionId);
      if (!connection || connection.status === 'disconnected' || connection.tokenVersion !== at.version) return true;
      if (performance.now() >= deadline) return false;
      await sleep(500);
    }
  }

  /** The service has rotated: this pair exists only here. Nothing but success ends the trying, while the process lives. */
  async function untilSaved(save: () => Promise<boolean>, connectionId: string): Promise<boolean> {
    for (let tries = 0; ; tries++) {
      try {
        return await save();
      } catch (err) {
        if (tries % 20 === 0) log.error({ connectionId, err }, 'a rotated token could not be saved; trying on');
        await sleep(Math.min(100 * 2 ** Math.min(tries, 6), 2000));
      }
    }
  }

  function seal(userId: string, tokens: { accessToken: string; refreshToken: string }): string {
    return sealer.seal(purposeFor(userId), JSON.stringify(tokens));
  }

  return {
    /**
     * A token that works now and for a while. `stale`: the version of one that the service has just refused; `grant`: what
     * the records have just said.
     * @throws Disconnected when the connection has ended; RetryLater when the service gives no token for now
     */
    async getAccessToken(connectionId: string, stale?: number, grant?: StoredGrant): Promise<AccessToken> {
      for (let waiting = inHand.get(connectionId); waiting; waiting = inHand.get(connectionId)) {
        const token = await waiting;
        if (token.version !== stale) return token;
      }
      const work = current(connectionId, stale, grant).finally(() => {
        if (inHand.get(connectionId) === work) inHand.delete(connectionId);
      });
      inHand.set(connectionId, work);
      return work;
    },

    seal,

    /**
     * Seals all pairs with the first key. What cannot be opened stays as it is. A refresh meanwhile is not disturbed: only
     * the very envelope that was opened is replaced, and which pair it holds does not change.
     */
    async rotateKeys(): Promise<{
      key: string;
      rotated: number;
      already: number;
      unreadable: { connectionId: string; reason: string }[];
    }> {
      const done = {
        key: sealer.keyId,
        rotated: 0,
        already: 0,
        unreadable: [] as { connectionId: string; reason: string }[],
      };
      for (const { id } of await connections.list()) {
        for (;;) {
          const connection = await connections.get(id);
          if (!connection?.tokens) break;
          const { tokens, userId } = connection;
          if (sealer.isCurrent(tokens)) {
            done.already++;
            break;
          }
          let plain: string;
          try {
            plain = sealer.open(purposeFor(userId), tokens);
          } catch (error) {
            done.unreadable.push({ connectionId: id, reason: reasonOf(error) });
            break;
          }
          if (await connections.reseal(id, tokens, sealer.seal(purposeFor(userId), plain))) {
            done.rotated++;
            break;
          }
        }
      }
      log.info({ ...done, unreadable: done.unreadable.length }, 'tokens sealed with the first key');
      return done;
    },

    /**
     * Ends the connection here and at the service, which is told as well as it can be reached. `ended`: it had not ended
     * before.
     */
    async disconnect(connectionId: string): Promise<{ ended: boolean; revoked: boolean }> {
      const held = await read(connectionId).catch(() => undefined);
      const ended = await connections.end(connectionId, 'disconnected by the operator');
      if (ended) log.warn({ connectionId, reason: 'disconnected by the operator' }, 'connection disconnected');
      if (!ended) return { ended, revoked: false };
      if (held) return { ended, revoked: await revoke(connectionId, held.refreshToken) };
      log.warn({ connectionId }, 'the grant was not revoked at the service: its tokens cannot be read');
      return { ended, revoked: false };
    },

    /** Resolves when no refresh is under way. */
    async settled(): Promise<void> {
      await Promise.allSettled(inHand.values());
    },
  };
}
