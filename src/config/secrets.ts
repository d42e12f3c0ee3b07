import { randomBytes } from 'node:crypto';
import { link, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigurationError } from '../floor/errors.ts';
import { type SigningKeys, signingKey } from '../floor/signing.ts';

/** Secrets that are generated in DATA_DIR, unless they are set. */

/** ENCRYPTION_KEYS, or the key under DATA_DIR. */
export async function encryptionKeys(config: {
  encryptionKeys?: Buffer[] | undefined;
  dataDir: string;
}): Promise<Buffer[]> {
  return config.encryptionKeys ?? [Buffer.from((await encryptionKeyIn(config.dataDir)).value, 'base64')];
}

/** The keys that a start would read now; empty: it would make a new one, which opens nothing. */
export async function savedEncryptionKeys(config: Parameters<typeof encryptionKeys>[0]): Promise<Buffer[]> {
  if (config.encryptionKeys) return config.encryptionKeys;
  const saved = await readFile(join(config.dataDir, 'encryption-key'), 'utf8').catch(() => '');
  return saved.trim() === '' ? [] : [Buffer.from(saved.trim(), 'base64')];
}

export function encryptionKeyIn(dataDir: string): Promise<Secret> {
  return readOrMake(dataDir, 'encryption-key', () => randomBytes(32).toString('base64'));
}

/**
 * SIGNING_KEY, or the key under DATA_DIR, the newest first. Undefined with DATABASE_URL: several processes would make keys of their
 * own, so nothing is signed. `made`: it was just generated.
 */
export async function signingSeedsOf(config: {
  signingKeys?: Buffer[] | undefined;
  databaseUrl?: string | undefined;
  dataDir: string;
}): Promise<{ seeds: Buffer[]; made: boolean } | undefined> {
  if (config.signingKeys) return { seeds: config.signingKeys, made: false };
  if (config.databaseUrl !== undefined) return undefined;
  const { value, made } = await readOrMake(config.dataDir, 'signing-key', () => randomBytes(32).toString('base64'));
  return { seeds: [Buffer.from(value, 'base64')], made };
}

/** The keys that sign reports and inventories; undefined: none does. `signingKeyMade`: they were just generated. */
export async function signingKeysOf(
  config: Parameters<typeof signingSeedsOf>[0],
): Promise<{ signingKeys: SigningKeys | undefined; signingKeyMade: boolean }> {
  const keys = await signingSeedsOf(config);
  return { signingKeys: keys?.seeds.map(signingKey) as SigningKeys | undefined, signingKeyMade: keys?.made ?? false };
}

/** The minimum length of an admin token, in characters. */
export const leastTokenLength = 24;

/**
 * ADMIN_TOKEN, or the token under DATA_DIR. `made`: it was just generated, so it must be shown once; `file`: where it is kept.
 * @throws ConfigurationError if the existing token is too short
 */
export async function adminTokenOf({ adminToken, dataDir }: { adminToken?: string | undefined; dataDir: string }) {
  const file = join(dataDir, 'admin-token');
  if (adminToken !== undefined) return { value: adminToken, made: false, file };
  const token = await readOrMake(dataDir, 'admin-token', () => randomBytes(24).toString('base64url'));
  const { length } = token.value;
  if (length < leastTokenLength) {
    throw new ConfigurationError([
      `${file} has a token of ${length} characters; expected at least ${leastTokenLength}. Delete the file: the next start makes a new token.`,
    ]);
  }
  return { ...token, file };
}

/** The password of the superuser of the embedded PostgreSQL. */
export function postgresPasswordIn(dataDir: string): Promise<Secret> {
  return readOrMake(dataDir, 'postgres-password', () => randomBytes(24).toString('hex'));
}

/** The admin token of an asset-mirror on this machine; undefined if it cannot be read. */
export async function findAdminToken(dataDir: string): Promise<string | undefined> {
  return readFile(join(dataDir, 'admin-token'), 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  );
}

interface Secret {
  value: string;
  made: boolean;
}

async function readOrMake(dataDir: string, name: string, make: () => string): Promise<Secret> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, name);
  try {
    const value = (await readFile(path, 'utf8')).trim();
    if (value !== '') return { value, made: false };
    await rm(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  // Written to a draft, then linked if the name is still free: two processes that start at once use the same secret.
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(draft, `${make()}\n`, { flag: 'wx', mode: 0o600, flush: true });
    const made = await link(draft, path).then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error;
        return false;
      },
    );
    return { value: (await readFile(path, 'utf8')).trim(), made };
  } finally {
    await rm(draft, { force: true });
  }
}
