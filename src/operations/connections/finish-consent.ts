import { Superseded } from '../../floor/errors.ts';
import type { Tags } from '../../floor/tags.ts';
import { dayMs } from '../../floor/units.ts';
import type { OAuthClient } from '../../oauth/client.ts';
import { openPair, purposeOf } from '../../oauth/pair.ts';
import type { Sealer } from '../../oauth/seal.ts';
import type { Me } from '../../source/client.ts';
import type { Connection, Consent } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';

export interface ConsentDeps extends Pick<OperationsDeps, 'store' | 'sealer' | 'client' | 'tokens' | 'queues' | 'log'> {
  oauth: OAuthClient;
}

export type Finished =
  | { kind: 'connected'; id: string; created: boolean; paused: boolean; companies: string[] }
  | { kind: 'another user'; expected: string; actual: string }
  /** An operator disconnected the user after the link was made. */
  | { kind: 'link ended' }
  /** The user connected again, or an operator disconnected the user, after this consent. */
  | { kind: 'superseded' };

/** A consent is given up if for this long it could not be finished, or its grant could not be revoked. */
export const giveUpMs = dayMs;
/** How long a consent waits for its next try, unless the library named another time. */
export const retryMs = 15_000;

export const openConsent = (sealer: Sealer, { id, tokens }: Consent) => openPair(sealer, purposeOf.consent(id), tokens);

/** Requests the user of the grant, and saves the connection with its companies and first sync. */
export async function finishConsent(deps: ConsentDeps, consent: Consent, signal: AbortSignal): Promise<Finished> {
  const { accessToken: token } = openConsent(deps.sealer, consent);
  const me = await deps.client.me({ token, signal });
  try {
    return await finishFor(deps, consent, me);
  } catch (error) {
    if (!(error instanceof Superseded)) throw error;
    // Revoking the grant could end a live connection of the user.
    const own = await deps.store.connections.ofUser(me.user.id);
    if (isLive(own)) await deps.store.consents.remove(consent.id);
    else await revokeConsent(deps, consent);
    return { kind: 'superseded' };
  }
}

/** @throws Superseded */
async function finishFor(deps: ConsentDeps, consent: Consent, me: Me): Promise<Finished> {
  const { store } = deps;
  const [own, expected] = await Promise.all([
    store.connections.ofUser(me.user.id),
    consent.connectionId === null ? undefined : store.connections.get(consent.connectionId),
  ]);
  // An earlier attempt saved the connection, and then failed.
  if (own?.connectedAt.getTime() === consent.createdAt.getTime()) {
    return { kind: 'connected', ...(await begin(deps, { id: own.id, created: false }, me)) };
  }
  if (expected && expected.userId !== me.user.id) {
    // Revoking could end a live connection of this other user, so that one gets the new tokens instead.
    if (isLive(own)) await saveConnection(deps, consent, me);
    else await revokeConsent(deps, consent);
    return {
      kind: 'another user',
      expected: expected.userEmail || expected.userName,
      actual: me.user.email || me.user.name,
    };
  }
  if (own?.status === 'disconnected' && own.linksSince && own.linksSince > consent.linkMadeAt) {
    await revokeConsent(deps, consent);
    return { kind: 'link ended' };
  }
  const saved = await saveConnection(deps, consent, me, consent.tags);
  const fields = { connectionId: saved.id, companies: me.companies.length };
  if (saved.created) deps.log.info({ event: 'connection.connected', ...fields }, 'connected');
  else if (saved.recovered)
    deps.log.info({ event: 'connection.recovered', ...fields }, 'connected again after a disconnect');
  else deps.log.info({ event: 'connection.reconnected', ...fields }, 'connected again');
  return { kind: 'connected', ...(await begin(deps, saved, me)) };
}

/** Saves the companies of a connection, and requests its first sync. */
async function begin(deps: ConsentDeps, { id, created }: { id: string; created: boolean }, me: Me) {
  const { store } = deps;
  await store.connections.setCompanies(id, me.companies, { complete: me.problems.length === 0, isNew: created });
  await store.syncs.request(id, 'incremental');
  await deps.queues.offerSyncs([id]);
  const paused = (await store.connections.get(id))?.status === 'paused';
  return { id, created, paused, companies: me.companies.map((company) => company.name) };
}

/** @throws Superseded */
const saveConnection = (
  { store, sealer, tokens }: ConsentDeps,
  consent: Consent,
  { user }: Me,
  tags: Tags | null = null,
) =>
  store.connections.connect({
    user,
    tags,
    tokens: tokens.seal(user.id, openConsent(sealer, consent)),
    accessExpiresAt: consent.accessExpiresAt,
    consent,
  });

/** Ends a consent that can never be finished. Its user is unknown, so revoking the grant could end a live connection. */
export async function giveUpConsent(deps: ConsentDeps, consent: Consent, reason: string): Promise<void> {
  const { connectionId } = consent;
  deps.log.warn({ event: 'consent.given_up', connectionId, reason }, 'consent given up');
  await deps.store.consents.remove(consent.id);
}

const isLive = (connection: Connection | undefined) => connection !== undefined && connection.status !== 'disconnected';

/** Revokes the grant at the library. If that fails, the consent stays in the database and is tried again. */
async function revokeConsent({ store, sealer, oauth, log }: ConsentDeps, consent: Consent): Promise<void> {
  try {
    await oauth.revoke(openConsent(sealer, consent).refreshToken);
  } catch (err) {
    const { connectionId } = consent;
    log.warn({ event: 'grant.revoke_failed', connectionId, err }, 'grant not revoked at the library');
    if (Date.now() - consent.createdAt.getTime() < giveUpMs) return store.consents.again(consent.id, retryMs);
  }
  await store.consents.remove(consent.id);
}
