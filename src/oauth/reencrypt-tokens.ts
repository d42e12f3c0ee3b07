import { reasonOf } from '../floor/errors.ts';
import type { Store } from '../store/store.ts';
import { purposeOf } from './pair.ts';
import type { Sealer } from './seal.ts';

export interface KeyRotation {
  /** The id of the key that seals. */
  key: string;
  rotated: number;
  already: number;
  /** `name`: the id of a connection, or `consent ID`, or `webhook ID`. */
  unreadable: { name: string; reason: string }[];
}

/** A sealed value: the token pair of a connection or of an unfinished consent, or the secrets of a webhook endpoint. */
interface Sealed {
  /** Its name in messages to operators. */
  name: string;
  purpose: string;
  /** Undefined: it has none. */
  read(): Promise<string | undefined>;
  /** False if it is no longer `before`. */
  replace(before: string, after: string): Promise<boolean>;
}

/**
 * Seals everything with the first key; what cannot be opened stays as it is. Safe during a refresh: only the envelope that was
 * opened is replaced, by one with the same content.
 */
export async function rotateKeys(store: Store, sealer: Sealer): Promise<KeyRotation> {
  const done: KeyRotation = { key: sealer.keyId, rotated: 0, already: 0, unreadable: [] };
  for (const one of await allSealed(store)) while (!(await reseal(one, sealer, done)));
  return done;
}

/** Returns whether it is finished; false: it was replaced meanwhile. */
async function reseal({ name, purpose, read, replace }: Sealed, sealer: Sealer, done: KeyRotation): Promise<boolean> {
  const before = await read();
  if (before === undefined) return true;
  if (sealer.isCurrent(before)) {
    done.already++;
    return true;
  }
  let plain: string;
  try {
    plain = sealer.open(purpose, before);
  } catch (error) {
    done.unreadable.push({ name, reason: reasonOf(error) });
    return true;
  }
  const isSaved = await replace(before, sealer.seal(purpose, plain));
  if (isSaved) done.rotated++;
  return isSaved;
}

/** Consents first: one that is finished meanwhile has become a connection. */
async function allSealed({ connections, consents, endpoints }: Store): Promise<Sealed[]> {
  const ofConsents = (await consents.list()).map(({ id }) => ({
    name: `consent ${id}`,
    purpose: purposeOf.consent(id),
    read: async () => (await consents.get(id))?.tokens,
    replace: (before: string, after: string) => consents.reseal(id, before, after),
  }));
  const ofConnections = (await connections.list()).map(({ id, userId }) => ({
    name: id,
    purpose: purposeOf.user(userId),
    read: async () => (await connections.get(id))?.tokens ?? undefined,
    replace: (before: string, after: string) => connections.reseal(id, before, after),
  }));
  const ofWebhooks = (await endpoints.list()).map(({ id }) => ({
    name: `webhook ${id}`,
    purpose: purposeOf.webhook(id),
    read: async () => (await endpoints.get(id))?.sealed ?? undefined,
    replace: (before: string, after: string) => endpoints.reseal(id, before, after),
  }));
  return [...ofConsents, ...ofConnections, ...ofWebhooks];
}

/** Opens everything that is sealed, and changes nothing. */
export async function checkSealed(
  store: Store,
  sealer: Pick<Sealer, 'open'>,
): Promise<{ checked: number; unreadable: { name: string; reason: string }[] }> {
  const found = { checked: 0, unreadable: [] as { name: string; reason: string }[] };
  for (const { name, purpose, read } of await allSealed(store)) {
    const envelope = await read();
    if (envelope === undefined) continue;
    found.checked++;
    try {
      sealer.open(purpose, envelope);
    } catch (error) {
      found.unreadable.push({ name, reason: reasonOf(error) });
    }
  }
  return found;
}
