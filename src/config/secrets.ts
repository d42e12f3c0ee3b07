import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** What the embedded mode makes for itself under DATA_DIR: read if it is there, made once if it is not. */

export function encryptionKeyIn(dataDir: string): Promise<{ value: string; made: boolean }> {
  return readOrMake(dataDir, 'encryption-key', () => randomBytes(32).toString('base64'));
}

export function adminTokenIn(dataDir: string): Promise<{ value: string; made: boolean }> {
  return readOrMake(dataDir, 'admin-token', () => randomBytes(24).toString('base64url'));
}

/** Of the superuser of the embedded PostgreSQL. */
export function postgresPasswordIn(dataDir: string): Promise<{ value: string; made: boolean }> {
  return readOrMake(dataDir, 'postgres-password', () => randomBytes(24).toString('hex'));
}

/** The operators' token of a service that runs on this machine, if its files can be read. */
export async function findAdminToken(dataDir: string): Promise<string | undefined> {
  return readFile(join(dataDir, 'admin-token'), 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  );
}

async function readOrMake(
  dataDir: string,
  name: string,
  make: () => string,
): Promise<{ value: string; made: boolean }> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const path = join(dataDir, name);
  try {
    const value = (await readFile(path, 'utf8')).trim();
    if (value !== '') return { value, made: false };
    await rm(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  // Whole under another name first, then under its own if that is still free: of two processes that start at once, both
  // use what the first has made.
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(`${make()}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
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
