import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Rejected, RetryLater, reasonOf } from '../../floor/errors.ts';
import { every, type Repeated } from '../../floor/every.ts';
import type { Tags } from '../../floor/tags.ts';
import { type Attempt, openAttempt } from '../../oauth/authorize.ts';
import { OAuthError } from '../../oauth/client.ts';
import { purposeOf, sealPair } from '../../oauth/pair.ts';
import { HttpError } from '../../source/http.ts';
import type { Consent } from '../../store/database/schema.ts';
import {
  type ConsentDeps,
  type Finished,
  finishConsent,
  giveUpConsent,
  giveUpMs,
  openConsent,
  retryMs,
} from './finish-consent.ts';

/** How long the browser waits before the connection is finished in the background. */
const patienceMs = 20_000;
/** How long a process owns a consent; one attempt takes at most half of it. */
const leaseMs = 60_000;
/** Longer than a refresh and one attempt take. */
const refreshLeaseMs = 180_000;
const tickMs = 2000;
/** How long a consent waits after the library refused its refresh token. */
const refusedMs = 3_600_000;

/** The attempt that a browser began with this state, from its sealed cookie. Each state works once. */
export async function useAttempt(
  { store, sealer }: Pick<ConsentDeps, 'store' | 'sealer'>,
  sealed: string,
  state: string,
): Promise<Attempt | undefined> {
  const attempt = openAttempt(sealer, sealed, state);
  const isFirst = attempt && (await store.connections.useState(attempt.state, new Date(attempt.expiresAt)));
  return isFirst ? attempt : undefined;
}

interface Consented {
  code: string;
  verifier: string;
  redirectUri: string;
  connectionId: string | undefined;
  tags: Tags | undefined;
  linkMadeAt: Date;
}

/**
 * Exchanges the code of a consent and makes a connection of it. `later`: the library does not answer now, and the connection
 * is finished in the background.
 * @throws OAuthError if the code is refused; Rejected or HttpError if the grant cannot be used
 */
export async function acceptConsent(deps: ConsentDeps, consented: Consented): Promise<Finished | { kind: 'later' }> {
  const consent = await exchange(deps, consented);
  const { id, connectionId } = consent;
  const deadline = performance.now() + patienceMs;
  for (let pauseMs = 1000; ; pauseMs *= 2) {
    try {
      const leftMs = Math.max(1, Math.floor(deadline - performance.now()));
      return await finishConsent(deps, consent, AbortSignal.timeout(leftMs));
    } catch (error) {
      if (isFinal(error, consent)) {
        await giveUpConsent(deps, consent, reasonOf(error));
        throw error;
      }
      const waitMs = waitOf(error) ?? pauseMs;
      if (performance.now() + waitMs >= deadline) {
        deps.log.warn(
          { event: 'consent.deferred', connectionId, reason: reasonOf(error) },
          'consent deferred, will retry',
        );
        await deps.store.consents.again(id, waitMs).catch(() => {});
        return { kind: 'later' };
      }
      await sleep(waitMs);
    }
  }
}

/** Saves the encrypted tokens before any other request: another process can finish it if this one dies. */
async function exchange({ store, sealer, oauth }: ConsentDeps, consented: Consented): Promise<Consent> {
  const { refreshToken, accessToken, clientId, accessMs } = await oauth.exchangeCode(consented);
  if (refreshToken === undefined) throw new Error('the library returned no refresh token');
  const id = randomUUID();
  const { linkMadeAt, connectionId = null, tags = null } = consented;
  const tokens = sealPair(sealer, purposeOf.consent(id), { accessToken, refreshToken, clientId });
  return store.consents.save({ id, tokens, connectionId, tags, linkMadeAt }, { accessMs, leaseMs });
}

/** Finishes consents in the background. */
export function finishConsents(deps: ConsentDeps): Repeated {
  const failed = (err: unknown) =>
    deps.log.warn({ event: 'consent.finish_failed', err }, 'consents not finished, will retry');
  return every(tickMs, (signal) => finishDue(deps, signal), { failed });
}

async function finishDue(deps: ConsentDeps, stopping: AbortSignal): Promise<void> {
  const taken = await deps.store.consents.take(leaseMs);
  if (!taken) return;
  let consent: Consent = taken;
  try {
    if (!taken.isFresh) consent = await refreshed(deps, taken);
    await finishConsent(deps, consent, AbortSignal.any([stopping, AbortSignal.timeout(leaseMs / 2)]));
  } catch (error) {
    // The library no longer accepts the access token: the next attempt gets a new one.
    if (taken.isFresh && isUnauthorized(error)) return deps.store.consents.expire(consent);
    if (isUnauthorized(error) || isFinal(error, consent)) return giveUpConsent(deps, consent, reasonOf(error));
    const { connectionId } = consent;
    deps.log.warn({ event: 'consent.deferred', connectionId, reason: reasonOf(error) }, 'consent deferred, will retry');
    await deps.store.consents.again(consent.id, waitOf(error) ?? retryMs);
  }
}

/** The consent with new tokens, once the access token has expired. */
async function refreshed({ store, sealer, tokens }: ConsentDeps, consent: Consent): Promise<Consent> {
  const { id, connectionId } = consent;
  const { refreshToken } = openConsent(sealer, consent);
  // No other process may send the same token meanwhile.
  await store.consents.again(id, refreshLeaseMs);
  const renewed = await tokens.refreshConsent({
    connectionId,
    refreshToken,
    save: (pair, accessMs) =>
      store.consents.renew(id, sealPair(sealer, purposeOf.consent(id), pair), { accessMs, leaseMs }),
  });
  if (!renewed) throw new Error('another process has ended this consent');
  return renewed;
}

const isUnauthorized = (error: unknown) => error instanceof HttpError && error.status === 401;

/** A new try would get the same answer: the grant is of no use. Other errors may pass within a day. */
const isFinal = (error: unknown, { createdAt }: Consent) =>
  error instanceof Rejected ||
  (error instanceof HttpError && error.status === 403) ||
  Date.now() - createdAt.getTime() > giveUpMs;

/** How long to wait after this error, in ms; undefined: as usual. */
function waitOf(error: unknown): number | undefined {
  // Another process may have rotated the token, and may save the new pair when it reaches the database again.
  if (error instanceof OAuthError && error.invalidGrant) return refusedMs;
  return error instanceof RetryLater ? error.waitMs : undefined;
}
