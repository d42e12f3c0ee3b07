import { setTimeout as sleep } from 'node:timers/promises';
import { backoff } from '../floor/backoff.ts';
import { Disconnected, RetryLater, reasonOf } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import { neverSent } from '../floor/network-problem.ts';
import type { Reason } from '../floor/reason-codes.ts';
import { reasonFields, renderReason } from '../floor/reasons.ts';
import type { Store } from '../store/store.ts';
import { type IssuedTokens, type OAuthClient, OAuthError, Unanswered } from './client.ts';
import { purposeOf, sealPair, type TokenPair } from './pair.ts';
import type { Sealer } from './seal.ts';

/** An access token, and the version of the pair it belongs to. */
export interface AccessToken {
  value: string;
  version: number;
}

/** `refused`: the connection has ended. `unanswered`: it is unknown whether the token was rotated. `failed`: it was not. */
export type RefreshResult = 'refreshed' | 'refused' | 'unanswered' | 'failed';

export interface RefreshDeps {
  store: Store;
  client: OAuthClient;
  sealer: Sealer;
  log: Log;
  leaseMs: number;
  onRefresh?: (result: RefreshResult) => void;
  /** Failed refreshes in a row, by connection. */
  failures: Map<string, number>;
}

/** A pair whose refresh is leased to `owner`. */
export interface LeasedPair {
  connectionId: string;
  userId: string;
  version: number;
  refreshToken: string;
  /** LIBRARY_CLIENT_ID that the pair was issued to. */
  clientId: string;
  owner: string;
  /** The lease of another process ran out: its refresh may still be answered. */
  takenOver: boolean;
  /** The answer to an earlier refresh of this pair may be lost. */
  lostAnswer: boolean;
}

/**
 * Refreshes a pair under its lease. Never aborted; the new pair is saved before it is returned.
 * Undefined: another pair replaced it meanwhile.
 * @throws Disconnected when the library refuses the current pair; RetryLater when it gives no token for now
 */
export async function refreshPair(deps: RefreshDeps, pair: LeasedPair): Promise<AccessToken | undefined> {
  const { connections } = deps.store;
  const renew = () => void connections.renewRefresh(pair.connectionId, pair.owner, deps.leaseMs).catch(() => {});
  const heartbeat = setInterval(renew, deps.leaseMs / 3);
  try {
    const issued = await request(deps, pair);
    return issued && (await save(deps, pair, issued));
  } finally {
    clearInterval(heartbeat);
  }
}

/** Requests a new pair. Undefined: the library refused a pair that was replaced meanwhile. */
async function request(deps: RefreshDeps, pair: LeasedPair): Promise<IssuedTokens | undefined> {
  try {
    const issued = await deps.client.refresh(pair.refreshToken);
    deps.onRefresh?.('refreshed');
    deps.failures.delete(pair.connectionId);
    return issued;
  } catch (error) {
    if (!(error instanceof OAuthError && error.invalidGrant)) throw await retryLater(deps, pair, error);
    // RFC 6749, section 5.2: a token that was issued to another client is refused in the same way. The grant may be alive.
    const { clientId } = deps.client;
    if (pair.clientId === clientId) return await endRefused(deps, pair);
    const text = `the tokens belong to LIBRARY_CLIENT_ID ${pair.clientId}, and the library refused them for ${clientId}`;
    throw await retryLater(deps, pair, new Error(`${text}; set LIBRARY_CLIENT_ID, or ask the user to connect again`));
  }
}

/** Saves the new pair. Undefined: the connection has ended or got another pair meanwhile. */
async function save(deps: RefreshDeps, pair: LeasedPair, issued: IssuedTokens): Promise<AccessToken | undefined> {
  const { connections } = deps.store;
  const { connectionId, userId, version } = pair;
  const expiresAt = performance.now() + issued.accessMs;
  const { accessToken, refreshToken = pair.refreshToken, clientId } = issued;
  const tokens = sealPair(deps.sealer, purposeOf.user(userId), { accessToken, refreshToken, clientId });
  const saved = await untilSaved(deps.log, connectionId, () =>
    connections.saveRefreshed(connectionId, version, tokens, expiresAt - performance.now()),
  );
  if (saved) {
    deps.log.debug({ event: 'token.refreshed', connectionId }, 'access token refreshed');
    return { value: issued.accessToken, version: version + 1 };
  }
  // The disconnect was about the previous refresh token. This new one may still work.
  const connection = await connections.get(connectionId);
  if (issued.refreshToken !== undefined && connection?.status === 'disconnected') {
    await revoke(deps, connectionId, issued.refreshToken);
  }
  return undefined;
}

/** The pair of a consent that is not a connection yet. */
export interface ConsentPair<T> {
  /** The connection that the consent is for; null: any. */
  connectionId: string | null;
  refreshToken: string;
  /** Saves the new pair, whose access token is used for `accessMs`. */
  save: (pair: TokenPair, accessMs: number) => Promise<T>;
}

/**
 * Refreshes the pair of a consent. Never aborted; the new pair is saved before this returns.
 * @throws OAuthError when the library refuses the pair; Unanswered when it may have rotated it
 */
export async function refreshConsent<T>({ client, log }: RefreshDeps, consent: ConsentPair<T>): Promise<T> {
  const issued = await client.refresh(consent.refreshToken);
  const expiresAt = performance.now() + issued.accessMs;
  const { accessToken, refreshToken = consent.refreshToken, clientId } = issued;
  const pair = { accessToken, refreshToken, clientId };
  return untilSaved(log, consent.connectionId, () => consent.save(pair, expiresAt - performance.now()));
}

/** The library has rotated, and only this process has the new pair: tries until it is saved. */
async function untilSaved<T>(log: Log, connectionId: string | null, save: () => Promise<T>): Promise<T> {
  for (let tries = 0; ; tries++) {
    try {
      return await save();
    } catch (err) {
      if (tries % 20 === 0)
        log.error({ event: 'token.save_failed', connectionId, err }, 'rotated token not saved, will retry');
      await sleep(Math.min(100 * 2 ** Math.min(tries, 6), 2000));
    }
  }
}

/** After `invalid_grant`: ends the connection, unless another pair replaced the refused one. */
async function endRefused(deps: RefreshDeps, pair: LeasedPair): Promise<undefined> {
  const { connectionId, version, owner } = pair;
  if (await waitForReplacement(deps, pair)) return;
  const reason: Reason = { code: pair.lostAnswer ? 'refresh_answer_lost' : 'grant_ended' };
  // After a reconnect, or if another process has the lease, the answer is about an earlier token: the connection goes on.
  if (!(await deps.store.connections.end(connectionId, reason, { tokenVersion: version, owner }))) {
    deps.log.info({ event: 'token.refusal_ignored', connectionId }, 'refusal of an earlier token ignored');
    return;
  }
  deps.onRefresh?.('refused');
  deps.log.warn({ event: 'connection.disconnected', connectionId, ...reasonFields(reason) }, 'connection disconnected');
  // The library may hold a grant for the lost pair, and only this token can revoke it.
  if (pair.lostAnswer) await revoke(deps, connectionId, pair.refreshToken);
  throw new Disconnected(renderReason(reason));
}

/**
 * Whether another pair was saved. After a takeover, waits: the previous lease holder may still be saving one, and may first have
 * to notice that its connections to the database are dead (60 s).
 */
async function waitForReplacement({ store, leaseMs }: RefreshDeps, pair: LeasedPair): Promise<boolean> {
  const deadline = performance.now() + (pair.takenOver ? 4 * leaseMs : 0);
  for (;;) {
    const connection = await store.connections.get(pair.connectionId);
    if (!connection || connection.status === 'disconnected' || connection.tokenVersion !== pair.version) return true;
    if (performance.now() >= deadline) return false;
    await sleep(500);
  }
}

/** Gives the lease back. The whole connection waits, and no asset spends an attempt: the token endpoint is at fault. */
async function retryLater(deps: RefreshDeps, pair: LeasedPair, cause: unknown): Promise<RetryLater> {
  const { log, failures } = deps;
  const { connectionId } = pair;
  const unanswered = cause instanceof Unanswered;
  deps.onRefresh?.(unanswered ? 'unanswered' : 'failed');
  await deps.store.connections
    .releaseRefresh(connectionId, pair.owner, {
      unanswered: unanswered || pair.takenOver,
      takenOver: pair.takenOver,
    })
    .catch((err) =>
      log.warn({ event: 'token.lease_release_failed', connectionId, err }, 'refresh lease not released; it expires'),
    );
  const before = failures.get(connectionId) ?? 0;
  failures.set(connectionId, before + 1);
  const refusal = unanswered ? cause.cause : cause;
  const requestedMs = refusal instanceof OAuthError ? (refusal.waitMs ?? 0) : 0;
  const waitMs = Math.max(requestedMs, backoff(before, 2000, 120_000));
  const retryInMs = Math.round(waitMs);
  log.warn({ event: 'token.refresh_failed', connectionId, unanswered, retryInMs, err: cause }, 'token refresh failed');
  // Without a connection to the library, only this process has the problem.
  const scope = neverSent(cause) ? 'asset' : 'connection';
  return new RetryLater({ code: 'no_access_token', error: reasonOf(cause) }, waitMs, { scope, cause });
}

/** After this time, a revocation is not tried again. */
const revokeMs = 10_000;

/** Revokes the grant at the library, in up to three tries. False: the library could not be reached or refused. */
export async function revoke(deps: RefreshDeps, connectionId: string, refreshToken: string): Promise<boolean> {
  const began = performance.now();
  for (let tries = 1; ; tries++) {
    try {
      await deps.client.revoke(refreshToken);
      return true;
    } catch (err) {
      const isRefused = err instanceof OAuthError && err.status < 500 && err.status !== 429;
      if (tries < 3 && !isRefused && performance.now() - began < revokeMs) {
        await sleep(tries * 500);
        continue;
      }
      deps.log.warn({ event: 'grant.revoke_failed', connectionId, err }, 'grant not revoked at the library');
      return false;
    }
  }
}
