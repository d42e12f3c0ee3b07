// @module-tag slow
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openPair, purposeOf, sealPair } from '../../src/oauth/pair.ts';
import { rotateKeys } from '../../src/oauth/reencrypt-tokens.ts';
import { createSealer } from '../../src/oauth/seal.ts';
import { newStore } from '../store/records.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';
import { until } from '../support/until.ts';

describe('an encryption key', { timeout: 240_000 }, () => {
  let scene: Scene;
  const [old, next] = Array.from({ length: 2 }, () => randomBytes(32).toString('base64')) as [string, string];
  beforeAll(async () => {
    scene = await newScene({ environment: { ENCRYPTION_KEYS: old } });
  });
  afterAll(async () => {
    await scene?.close();
  });
  const sealed = async () => (await scene.mirror.store.connections.get(scene.connectionId))!.tokens;
  const rotate = async (...words: string[]) => {
    const { PUBLIC_URL: ASSET_MIRROR_URL, ADMIN_TOKEN } = scene.ground.environment;
    const env = { ...spawned, ASSET_MIRROR_URL, ADMIN_TOKEN };
    const done = await promisify(execFile)(process.execPath, ['src/main.ts', 'keys', 'rotate', ...words], {
      env,
    }).catch((error) => error);
    return { code: done.code ?? 0, output: `${done.stdout}${done.stderr}` };
  };

  test('a missing encryption key is named, and its connection waits unchanged until the key is back', async () => {
    const id = await scene.upload();
    const tokens = await sealed();
    await scene.restart({ ENCRYPTION_KEYS: next });
    await scene.resync();
    const connection = async () => scene.mirror.api('GET', `/connections/${scene.connectionId}`);
    const { lastError } = await until('the reason', async () => {
      const it = await connection();
      return it.lastError && it;
    });
    expect(lastError).toMatch(
      /encrypted with the key [\da-f]{8}, which is not among ENCRYPTION_KEYS; add that key again/,
    );
    expect(lastError).toContain(tokens!.split('.')[1]);
    const { status, adaptiveLimit } = await connection();
    expect(status).toBe('active');
    expect(Date.parse(adaptiveLimit.delayedUntil)).toBeGreaterThan(Date.now());
    expect(await sealed()).toBe(tokens);

    const unread = await rotate();
    expect(unread.code, unread.output).toBe(1);
    expect(unread.output).toMatch(/0 secrets encrypted again.*Not changed because unreadable: 1 secret\./s);
    expect(await sealed()).toBe(tokens);

    await scene.restart({ ENCRYPTION_KEYS: `${next},${old}` });
    await scene.ground.endWaits();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('the sync to end without an error', async () => (await connection()).lastError === null);
  });

  test('an encryption key that is not the first is not needed any more after keys rotate', async () => {
    await scene.restart({ ENCRYPTION_KEYS: `${next},${old}` });
    const before = await sealed();
    const first = await rotate();
    expect(first.code, first.output).toBe(0);
    expect(first.output).toMatch(/^1 secret encrypted again with the key [\da-f]{8}; 0 already used it\.\n/);
    expect(await sealed()).not.toBe(before);
    expect(JSON.parse((await rotate('--json')).output)).toMatchObject({ rotated: 0, already: 1, unreadable: [] });

    await scene.restart({ ENCRYPTION_KEYS: next });
    const id = await scene.upload();
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
  });
});

test('keys rotate also encrypts the grant of an unfinished consent with the first key', async () => {
  const { store, close } = await newStore();
  const [old, next] = [randomBytes(32), randomBytes(32)];
  const pair = { accessToken: 'svca_1', refreshToken: 'svcr_1', clientId: 'app' };
  const purpose = purposeOf.consent('c1');
  await store.consents.save(
    {
      id: 'c1',
      tokens: sealPair(createSealer([old]), purpose, pair),
      connectionId: null,
      tags: null,
      linkMadeAt: new Date(),
    },
    { accessMs: 3_600_000, leaseMs: 60_000 },
  );
  expect(await rotateKeys(store, createSealer([next, old]))).toMatchObject({ rotated: 1, unreadable: [] });
  const { tokens } = (await store.consents.get('c1'))!;
  expect(openPair(createSealer([next]), purpose, tokens)).toEqual(pair);
  await close();
});
