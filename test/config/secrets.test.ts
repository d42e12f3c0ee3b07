import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { adminTokenOf, encryptionKeyIn, findAdminToken, signingSeedsOf } from '../../src/config/secrets.ts';
import { ConfigurationError } from '../../src/floor/errors.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-secrets-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

test('processes that start at the same time use the same encryption key', async () => {
  const all = await Promise.all(Array.from({ length: 50 }, () => encryptionKeyIn(directory)));
  expect(new Set(all.map(({ value }) => value)).size).toBe(1);
  expect(all.filter(({ made }) => made)).toHaveLength(1);
  expect(Buffer.from(all[0]!.value, 'base64')).toHaveLength(32);
  expect(await readdir(directory)).toEqual(['encryption-key']);
});

test('the operator token is made once, readable for its owner only, and found by the next start', async () => {
  const { value, made } = await adminTokenOf({ dataDir: directory });
  expect(made).toBe(true);
  expect(await adminTokenOf({ dataDir: directory })).toMatchObject({ value, made: false });
  expect(await findAdminToken(directory)).toBe(value);
  expect((await stat(join(directory, 'admin-token'))).mode & 0o777).toBe(0o600);
});

test('an operator token in the file that is too short is refused, and the file is kept', async () => {
  const path = join(directory, 'admin-token');
  await writeFile(path, 'a-token-of-23-character\n');
  const error = await adminTokenOf({ dataDir: directory }).catch((reason) => reason);
  expect(error).toBeInstanceOf(ConfigurationError);
  expect(error.message).toBe(
    `${path} has a token of 23 characters; expected at least 24. Delete the file: the next start makes a new token.`,
  );
  expect(await readFile(path, 'utf8')).toBe('a-token-of-23-character\n');
  await writeFile(path, 'a-token-of-24-characters\n');
  expect(await adminTokenOf({ dataDir: directory })).toMatchObject({ value: 'a-token-of-24-characters', made: false });
});

test('the signing key is made once, and not at all with DATABASE_URL', async () => {
  const made = await signingSeedsOf({ dataDir: directory });
  expect(made).toMatchObject({ made: true, seeds: [expect.any(Buffer)] });
  expect(await signingSeedsOf({ dataDir: directory })).toEqual({ ...made, made: false });
  const databaseUrl = 'postgres://host/database';
  expect(await signingSeedsOf({ dataDir: directory, databaseUrl })).toBeUndefined();
  const signingKeys = [Buffer.alloc(32)];
  expect(await signingSeedsOf({ dataDir: directory, databaseUrl, signingKeys })).toEqual({
    seeds: signingKeys,
    made: false,
  });
});
