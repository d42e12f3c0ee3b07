import { text } from 'node:stream/consumers';
import type { Log } from '../log.ts';
import { parsed } from '../parsed.ts';
import type { PublicKey, Signer } from '../signing.ts';
import { publicKeyAt } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';

/** A public key as it is in the bucket. */
export interface PublishedKey extends PublicKey {
  version: 1;
  /** The older key that vouches for it: its signature of `vouching`, in base64. Null: it is the first one. */
  signedBy: { keyId: string; signature: string } | null;
}

/** What an older key signs in order to vouch for a newer one. */
export const vouching = (keyId: string) => `key of asset-mirror ${keyId}\n`;

/** Writes the public key to the bucket, signed by the older one that is configured. */
export async function publishKey(
  { storage, log }: { storage: Storage; log: Log },
  [key, older]: Signer,
  signal: AbortSignal,
): Promise<void> {
  const { keyId, publicKey } = key;
  const at = publicKeyAt(keyId);
  // Not written again without the older key, which could not sign it again.
  if (!older && (await storage.head(at, { signal }))) return;
  const body = older && (await storage.get(at, { signal }));
  if (body && parsed<PublishedKey>(await text(body))?.signedBy) return;
  const signedBy = older ? { keyId: older.keyId, signature: older.sign(vouching(keyId)) } : null;
  const content: PublishedKey = { version: 1, keyId, publicKey, signedBy };
  await storage.put(at, `${JSON.stringify(content, null, 2)}\n`, { contentType: 'application/json', signal });
  log.info({ event: 'signing_key.published', keyId, signedBy: older?.keyId ?? null }, 'signing key published');
}
