import type { Log } from '../../floor/log.ts';
import { shortText } from '../../floor/short-text.ts';
import { isSignedBy, type PublicKey, type SigningKeys } from '../../floor/signing.ts';
import { publicKeyAt } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import { parseObject } from '../json-object.ts';

/** A public key as it is in the bucket. */
export interface PublishedKey extends PublicKey {
  version: 1;
  /** The older key that confirms it, by a signature of `keyConfirmation`, in base64. Null: it is the first key. */
  signedBy: { keyId: string; signature: string } | null;
}

/** The maximum size of a key file in bytes. */
const largestKey = 64 * 1024;

/** The text that an older key signs to confirm the newer key `keyId`. */
export const keyConfirmation = (keyId: string) => `key of asset-mirror ${keyId}\n`;

/** Writes the public keys to the bucket, each signed by the next older one that is configured. */
export async function publishKeys(
  { storage, log }: { storage: Storage; log: Log },
  signingKeys: SigningKeys,
  signal: AbortSignal,
): Promise<void> {
  for (const [index, { keyId, publicKey }] of signingKeys.entries()) {
    const older = signingKeys[index + 1];
    const at = publicKeyAt(keyId);
    const body = await storage.get(at, { signal });
    const found = body && parseObject<PublishedKey>((await shortText(body, largestKey)) ?? '');
    // If the older key is no longer configured, the signature that it made earlier stays.
    const isConfirmed =
      !older ||
      (found?.signedBy?.keyId === older.keyId &&
        isSignedBy(older.publicKey, keyConfirmation(keyId), String(found.signedBy.signature)));
    if (found?.keyId === keyId && found.publicKey === publicKey && isConfirmed) continue;
    const signedBy = older ? { keyId: older.keyId, signature: older.sign(keyConfirmation(keyId)) } : null;
    const content: PublishedKey = { version: 1, keyId, publicKey, signedBy };
    await storage.put(at, `${JSON.stringify(content, null, 2)}\n`, { contentType: 'application/json', signal });
    log.info({ event: 'signing_key.published', keyId, signedBy: older?.keyId ?? null }, 'signing key published');
  }
}
