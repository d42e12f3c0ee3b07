import { createHmac, hash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

const deriveKey = promisify<string, Buffer, number, Buffer>(scrypt);

/** The prefixes of section 2.2. */
type Prefix = 'svcc_' | 'svca_' | 'svcr_' | 'svcs_';

export function newSecret(prefix: Prefix | '' = ''): string {
  return prefix + randomBytes(32).toString('base64url');
}

export function newId(prefix: string): string {
  return `${prefix}_${randomBytes(9).toString('hex')}`;
}

/** The stored form of a secret. Secrets have 256 random bits, so one round of SHA-256 is enough. */
export function digest(secret: string): string {
  return hash('sha256', secret, 'base64url');
}

/** Compares in constant time. */
export function safeEqual(a: string, b: string): boolean {
  return timingSafeEqual(hash('sha256', a, 'buffer'), hash('sha256', b, 'buffer'));
}

export function mac(key: string, ...parts: string[]): string {
  return createHmac('sha256', key).update(parts.join('\n')).digest('base64url');
}

/** The password of a user of the content: the same at each start with the same key. */
export function derivedPassword(key: string, userId: string): string {
  return newPassword(Buffer.from(mac(key, 'password', userId), 'base64url'));
}

/** Passwords can be guessed, so they are stored with a salt and a slow hash. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const key = await deriveKey(password, salt, 32);
  return `${salt.toString('base64url')}.${key.toString('base64url')}`;
}

export async function isPassword(password: string, hash: string): Promise<boolean> {
  const [salt = '', key = ''] = hash.split('.');
  const derived = await deriveKey(password, Buffer.from(salt, 'base64url'), 32);
  return safeEqual(derived.toString('base64url'), key);
}

/** A password that is easy to type: four groups of four characters, about 80 bits. */
export function newPassword(bytes = randomBytes(16)): string {
  const letters = 'abcdefghjkmnpqrstuvwxyz23456789x';
  const word = [...bytes.subarray(0, 16)].map((byte) => letters[byte % 32]).join('');
  return word.match(/.{4}/g)!.join('-');
}
