import { reasonOf } from '../errors.ts';
import type { Store } from '../store/store.ts';
import { purposeFor } from './pair.ts';
import type { Sealer } from './seal.ts';

export interface KeyRotation {
  /** The id of the key that seals. */
  key: string;
  rotated: number;
  already: number;
  unreadable: { connectionId: string; reason: string }[];
}

/**
 * Seals all pairs with the first key; a pair that cannot be opened stays as it is. Safe during a refresh: only the
 * envelope that was opened is replaced, by one with the same pair.
 */
export async function rotateKeys(store: Store, sealer: Sealer): Promise<KeyRotation> {
  const { connections } = store;
  const done: KeyRotation = { key: sealer.keyId, rotated: 0, already: 0, unreadable: [] };

  /** Returns whether the connection is finished; false: its pair was replaced meanwhile. */
  async function reseal(connectionId: string): Promise<boolean> {
    const connection = await connections.get(connectionId);
    if (!connection?.tokens) return true;
    const { tokens, userId } = connection;
    if (sealer.isCurrent(tokens)) {
      done.already++;
      return true;
    }
    let plain: string;
    try {
      plain = sealer.open(purposeFor(userId), tokens);
    } catch (error) {
      done.unreadable.push({ connectionId, reason: reasonOf(error) });
      return true;
    }
    const replaced = await connections.reseal(connectionId, tokens, sealer.seal(purposeFor(userId), plain));
    if (replaced) done.rotated++;
    return replaced;
  }

  for (const { id } of await connections.list()) while (!(await reseal(id)));
  return done;
}
