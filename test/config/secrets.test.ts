import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { adminTokenIn, encryptionKeyIn, findAdminToken } from '../../src/config/secrets.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'asset-mirror-secrets-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

test('whoever starts at the same time uses the same key, and one of them has made it', async () => {
  const all = await Promise.all(Array.from({ length: 50 }, () => encryptionKeyIn(directory)));
  expect(new Set(all.map(({ value }) => value)).size).toBe(1);
  expect(all.filter(({ made }) => made)).toHaveLength(1);
  expect(Buffer.from(all[0]!.value, 'base64')).toHaveLength(32);
  expect(await readdir(directory)).toEqual(['encryption-key']);
});

test('the token of operators is made once, kept for its owner only, and found again', async () => {
  const { value, made } = await adminTokenIn(directory);
  expect(made).toBe(true);
  expect(await adminTokenIn(directory)).toEqual({ value, made: false });
  expect(await findAdminToken(directory)).toBe(value);
  expect((await stat(join(directory, 'admin-token'))).mode & 0o777).toBe(0o600);
});
