import { createHash, createPrivateKey, createPublicKey, sign, verify } from 'node:crypto';

/** Ed25519 signatures (RFC 8032) over texts in UTF-8. */

/** `keyId`: the fingerprint of the public key, the SHA-256 of its DER form in lower-case hex. */
export interface PublicKey {
  keyId: string;
  /** PEM. */
  publicKey: string;
}

export interface SigningKey extends PublicKey {
  /** Base64. */
  sign(text: string): string;
}

/** The first key signs. Each of the others is older, and only confirms the key before it. */
export type SigningKeys = [SigningKey, ...SigningKey[]];

/** The PKCS #8 form of an Ed25519 key before its 32 bytes (RFC 8410, section 7). */
const pkcs8 = Buffer.from('302e020100300506032b657004220420', 'hex');

/** `seed`: 32 random bytes. */
export function signingKey(seed: Buffer): SigningKey {
  const key = createPrivateKey({ key: Buffer.concat([pkcs8, seed]), format: 'der', type: 'pkcs8' });
  const publicKey = createPublicKey(key).export({ format: 'pem', type: 'spki' }) as string;
  return {
    keyId: fingerprintOf(publicKey),
    publicKey,
    sign: (text) => sign(null, Buffer.from(text), key).toString('base64'),
  };
}

/** @throws Error if it is not a public key */
export function fingerprintOf(publicKey: string): string {
  const der = createPublicKey(publicKey).export({ format: 'der', type: 'spki' });
  return createHash('sha256').update(der).digest('hex');
}

/** False also for a key or signature that is none. */
export function isSignedBy(publicKey: string, text: string, signature: string): boolean {
  try {
    return verify(null, Buffer.from(text), createPublicKey(publicKey), Buffer.from(signature, 'base64'));
  } catch {
    return false;
  }
}
