import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  createSecretKey,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto';

/** Compares in constant time. */
export function isSame(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

export type Sealer = ReturnType<typeof createSealer>;

/**
 * Encryption at rest and signatures, with keys that can be rotated: the first key seals and signs, all keys open and verify.
 *
 * Envelope: `v1.{key id}.{nonce}.{ciphertext and tag}`, AES-256-GCM (NIST SP 800-38D), base64url. The key id is the start
 * of the key's SHA-256, so an envelope names its key. `purpose` is authenticated: a value that was sealed for one purpose
 * cannot be opened for another.
 */
export function createSealer(keys: readonly Buffer[]) {
  const ring = keys.map((key) => ({
    id: createHash('sha256').update(key).digest('hex').slice(0, 8),
    cipher: createSecretKey(Buffer.from(hkdfSync('sha256', key, '', 'asset-mirror seal', 32))),
    mac: Buffer.from(hkdfSync('sha256', key, '', 'asset-mirror sign', 32)),
  }));
  const first = ring[0];
  if (!first) throw new Error('at least one encryption key is needed');
  const signature = (mac: Buffer, purpose: string, text: string) =>
    createHmac('sha256', mac).update(`${purpose}\0${text}`).digest('base64url');

  return {
    /** The id of the first key. */
    keyId: first.id,

    /** Whether it was sealed with the first key. */
    isCurrent: (envelope: string): boolean => envelope.startsWith(`v1.${first.id}.`),

    seal(purpose: string, plain: string): string {
      const nonce = randomBytes(12);
      const cipher = createCipheriv('aes-256-gcm', first.cipher, nonce).setAAD(Buffer.from(purpose));
      const sealed = Buffer.concat([cipher.update(plain, 'utf8'), cipher.final(), cipher.getAuthTag()]);
      return `v1.${first.id}.${nonce.toString('base64url')}.${sealed.toString('base64url')}`;
    },

    /** @throws Error that names the missing key, or says that the envelope was altered */
    open(purpose: string, envelope: string): string {
      const [version, id, nonce, sealed, more] = envelope.split('.');
      if (version !== 'v1' || !id || !nonce || !sealed || more !== undefined)
        throw new Error(`cannot decrypt ${purpose}: not an encrypted value`);
      const key = ring.find((k) => k.id === id);
      if (!key) {
        throw new Error(
          `cannot decrypt ${purpose}: it was encrypted with the key ${id}, which is not among ENCRYPTION_KEYS; add that key again`,
        );
      }
      const bytes = Buffer.from(sealed, 'base64url');
      try {
        const options = { authTagLength: 16 };
        const decipher = createDecipheriv('aes-256-gcm', key.cipher, Buffer.from(nonce, 'base64url'), options)
          .setAAD(Buffer.from(purpose))
          .setAuthTag(bytes.subarray(-16));
        return decipher.update(bytes.subarray(0, -16), undefined, 'utf8') + decipher.final('utf8');
      } catch (cause) {
        throw new Error(`cannot decrypt ${purpose}: the encrypted value was altered, or belongs elsewhere`, { cause });
      }
    },

    /** `{payload}.{signature}`, both base64url: signed, not encrypted. */
    sign(purpose: string, payload: string): string {
      const body = Buffer.from(payload).toString('base64url');
      return `${body}.${signature(first.mac, purpose, body)}`;
    },

    /** The payload; undefined if we did not sign it for this purpose. */
    verify(purpose: string, signed: string): string | undefined {
      const [body, given, more] = signed.split('.');
      if (!body || !given || more !== undefined) return undefined;
      const ours = ring.some((key) => isSame(given, signature(key.mac, purpose, body)));
      return ours ? Buffer.from(body, 'base64url').toString('utf8') : undefined;
    },
  };
}
