import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { Rejected, RetryLater, reasonOf } from '../errors.ts';
import { every } from '../every.ts';
import type { Log } from '../log.ts';
import { type OAuthClient, OAuthError } from '../oauth/client.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Tokens } from '../oauth/tokens.ts';
import type { Queues } from '../queue/queues.ts';
import type { Schedule } from '../queue/scheduler.ts';
import type { LibraryClient } from '../source/client.ts';
import { HttpError } from '../source/http.ts';
import { storable } from '../source/schemas.ts';
import type { Consent } from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { within } from '../within.ts';

export interface ConsentDeps {
  store: Store;
  sealer: Sealer;
  oauth: OAuthClient;
  client: LibraryClient;
  tokens: Tokens;
  queues: Queues;
  schedule: Schedule;
  log: Log;
}

export type Finished =
  | { kind: 'connected'; created: boolean; companies: string[] }
  | { kind: 'another user'; expected: string; actual: string }
  /** An operator disconnected the user after the link was made. */
  | { kind: 'link ended' }
  /** The user connected again, or was disconnected, after this consent. */
  | { kind: 'superseded' };

/** How long the browser waits for an answer before the connection is finished in the background. */
const patienceMs = 20_000;
/** A process has a consent for this long; one attempt takes at most half of it. */
const holdMs = 60_000;
/** Longer than a refresh and one attempt take. */
const refreshHoldMs = 180_000;
const tickMs = 2000;
const retryMs = 15_000;
/** A grant that could not be revoked for this long is given up. */
const forgetMs = 24 * 3_600_000;

const pairOf = z.object({ accessToken: z.string(), refreshToken: z.string() });
const purposeFor = (id: string) => `consent ${id}`;

/**
 * Makes connections of consents. The grant is saved, encrypted, before the service is asked whose it is: if the service does
 * not answer for longer than a person waits, or the process dies, any process finishes the connection later.
 */
export function createConsents(deps: ConsentDeps) {
  const { store, sealer, oauth, log } = deps;
  const stopping = new AbortController();

  const seal = (id: string, pair: z.infer<typeof pairOf>) => sealer.seal(purposeFor(id), JSON.stringify(pair));
  const open = (consent: Consent) => pairOf.parse(JSON.parse(sealer.open(purposeFor(consent.id), consent.tokens)));

  /** Asks the library whose grant it is, and saves the connection with its companies, first sync and schedule. */
  async function finish(consent: Consent, signal: AbortSignal): Promise<Finished> {
    const pair = open(consent);
    const me = storable(await deps.client.me({ token: pair.accessToken, signal }));
    const [own, expected] = await Promise.all([
      store.connections.ofUser(me.user.id),
      consent.connectionId === null ? undefined : store.connections.get(consent.connectionId),
    ]);
    if ([own?.connectedAt, own?.disconnectedAt].some((at) => at && at > consent.createdAt)) {
      if (own!.status === 'disconnected') await revoke(consent);
      else await store.consents.remove(consent.id);
      return { kind: 'superseded' };
    }
    const save = () =>
      store.connections.saveGrant({
        user: me.user,
        tokens: deps.tokens.seal(me.user.id, pair),
        accessExpiresAt: consent.accessExpiresAt,
        consentId: consent.id,
      });
    if (expected && expected.userId !== me.user.id) {
      // Revoking might end a connection that this other user has; so a live one gets the fresh tokens instead.
      if (own && own.status !== 'disconnected') await save();
      else await revoke(consent);
      return {
        kind: 'another user',
        expected: expected.userEmail || expected.userName,
        actual: me.user.email || me.user.name,
      };
    }
    if (own?.status === 'disconnected' && own.linksSince && own.linksSince > consent.linkMadeAt) {
      await revoke(consent);
      return { kind: 'link ended' };
    }
    const { id, created, recovered } = await save();
    await store.connections.setCompanies(id, me.companies, { complete: me.problems.length === 0 });
    await store.syncs.request(id, 'incremental');
    log.info(
      { connectionId: id, companies: me.companies.length, created, recovered },
      created ? 'connected' : 'connected again',
    );
    // The dispatcher does the same from the records when the queue is away, or this process dies here.
    await within(2000, Promise.all([deps.schedule.alignOne(id), deps.queues.addSync(id)])).catch((err) =>
      log.warn({ connectionId: id, err: reasonOf(err) }, 'first sync not queued yet'),
    );
    return { kind: 'connected', created, companies: me.companies.map((company) => company.name) };
  }

  /** Ends a consent whose user cannot be determined. */
  async function giveUp(consent: Consent, reason: string): Promise<void> {
    const { id, connectionId } = consent;
    log.warn({ connectionId, reason }, 'consent given up');
    const connection = connectionId === null ? undefined : await store.connections.get(connectionId);
    // Revoking might end a connection that is alive.
    if (connection && connection.status !== 'disconnected') await store.consents.remove(id);
    else await revoke(consent);
  }

  /** Revokes the grant at the library. If that fails, the consent stays in the records and is tried again. */
  async function revoke(consent: Consent): Promise<void> {
    try {
      await oauth.revoke(open(consent).refreshToken);
    } catch (err) {
      log.warn({ connectionId: consent.connectionId, err }, 'the grant could not be revoked at the service');
      if (Date.now() - consent.createdAt.getTime() < forgetMs) return store.consents.again(consent.id, retryMs);
    }
    await store.consents.remove(consent.id);
  }

  /** A consent with new tokens, for the old ones have expired. */
  async function refreshed(consent: Consent): Promise<Consent> {
    const { refreshToken } = open(consent);
    // Nobody else may send the same token meanwhile.
    await store.consents.again(consent.id, refreshHoldMs);
    const grant = await oauth.refresh(refreshToken);
    const pair = { accessToken: grant.accessToken, refreshToken: grant.refreshToken ?? refreshToken };
    return store.consents.renew(consent.id, seal(consent.id, pair), grant.accessMs);
  }

  /** Finishes one that is due. False: there is none. */
  async function finishDue(): Promise<boolean> {
    const taken = await store.consents.take(holdMs);
    if (!taken) return false;
    let consent: Consent = taken;
    try {
      if (!taken.isFresh) consent = await refreshed(taken);
      await finish(consent, AbortSignal.any([stopping.signal, AbortSignal.timeout(holdMs / 2)]));
    } catch (error) {
      if (isFinal(error)) await giveUp(consent, reasonOf(error));
      else await store.consents.again(consent.id, waitOf(error) ?? retryMs);
    }
    return true;
  }

  return {
    /**
     * Finishes what a user has consented to. `later`: the service does not answer now, and it is finished in the background.
     * @throws OAuthError when the code is refused; Rejected or HttpError when the grant is of no use, and revoked
     */
    async accept(consented: {
      code: string;
      verifier: string;
      redirectUri: string;
      connectionId: string | undefined;
      linkMadeAt: Date;
    }): Promise<Finished | { kind: 'later' }> {
      const { refreshToken, accessToken, accessMs } = await oauth.exchangeCode(consented);
      if (refreshToken === undefined) throw new Error('the service gave no refresh token');
      const id = randomUUID();
      const tokens = seal(id, { accessToken, refreshToken });
      const { linkMadeAt, connectionId = null } = consented;
      const consent = await store.consents
        .save({ id, tokens, connectionId, linkMadeAt }, { accessMs, holdMs })
        .catch(async (error) => {
          await oauth
            .revoke(refreshToken)
            .catch((err) => log.warn({ err }, 'the grant could not be revoked at the service'));
          throw error;
        });
      const deadline = performance.now() + patienceMs;
      for (let pauseMs = 1000; ; pauseMs *= 2) {
        try {
          return await finish(consent, AbortSignal.timeout(Math.max(1, Math.floor(deadline - performance.now()))));
        } catch (error) {
          if (isFinal(error)) {
            await giveUp(consent, reasonOf(error));
            throw error;
          }
          const waitMs = waitOf(error) ?? pauseMs;
          if (performance.now() + waitMs < deadline) {
            await sleep(waitMs);
            continue;
          }
          log.warn({ connectionId, reason: reasonOf(error) }, 'consent is finished later');
          await store.consents.again(id, waitMs).catch(() => {});
          return { kind: 'later' };
        }
      }
    },

    /** Finishes in the background what could not be finished at once. */
    start(): void {
      const failed = 'consents cannot be finished; trying on';
      void every(tickMs, async () => void (await finishDue()), { signal: stopping.signal, log, failed });
    },

    stop(): void {
      stopping.abort(new Error('shutting down'));
    },
  };
}

/** The same answer would come again: the grant is of no use. */
const isFinal = (error: unknown) =>
  error instanceof Rejected ||
  (error instanceof HttpError && error.status < 500) ||
  (error instanceof OAuthError && error.invalidGrant);

/** How long the library asked to wait, in ms; undefined if it did not. */
const waitOf = (error: unknown) => (error instanceof RetryLater ? error.waitMs : undefined);
