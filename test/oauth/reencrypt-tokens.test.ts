import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { RetryLater } from '../../src/floor/errors.ts';
import { createSealer } from '../../src/oauth/seal.ts';
import { latch } from './relay.ts';
import { failureOf, newTokensGround } from './tokens-ground.ts';

const ground = await newTokensGround();
const { newConnection, relay, sealer, sql, store, tokensOf, works } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('resealing all tokens with a new key', () => {
  const [old, next] = [randomBytes(32), randomBytes(32)];
  const ofOld = () => tokensOf({ sealer: createSealer([old]) });
  const ofBoth = () => tokensOf({ sealer: createSealer([next, old]) });
  const ofNext = () => tokensOf({ sealer: createSealer([next]) });
  const inAnHour = () => new Date(Date.now() + 3_600_000);

  /** A connection whose tokens are sealed with the old key, and whose access token has not expired. */
  async function newSealed() {
    const connection = await newConnection(inAnHour());
    const { access_token: accessToken, refresh_token: refreshToken } = connection.grant;
    const pair = { accessToken, refreshToken, clientId: 'app' };
    await sql.query('UPDATE connections SET tokens = $2 WHERE id = $1', [
      connection.id,
      ofOld().seal(connection.user.id, pair),
    ]);
    return connection;
  }
  const row = async (id: string) => (await store.connections.get(id))!;
  beforeEach(() => sql.query('UPDATE connections SET tokens = NULL'));

  it('resealing makes the old key unnecessary, changes no pair, and does nothing the second time', async () => {
    const [one, two] = [await newSealed(), await newSealed()];
    const before = await row(one.id);
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 2, already: 0, unreadable: [] });
    expect({ ...(await row(one.id)), tokens: '' }).toEqual({ ...before, tokens: '' });
    for (const { id, grant } of [one, two]) {
      expect(await ofNext().getAccessToken(id)).toEqual({ value: grant.access_token, version: 1 });
      expect(await failureOf(ofOld().getAccessToken(id))).toBeInstanceOf(RetryLater);
    }
    const { tokens } = await row(one.id);
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 0, already: 2, unreadable: [] });
    expect((await row(one.id)).tokens).toBe(tokens);
  });

  it('resealing names the missing key of a pair, and leaves that pair unchanged', async () => {
    const [good, sealed] = [await newSealed(), await newConnection(inAnHour())];
    const { tokens } = await row(sealed.id);
    const done = await ofBoth().rotateKeys();
    expect(done).toMatchObject({ rotated: 1, already: 0, unreadable: [{ name: sealed.id }] });
    expect(done.unreadable[0]!.reason).toContain(`the key ${sealer.keyId}, which is not among ENCRYPTION_KEYS`);
    expect((await row(sealed.id)).tokens).toBe(tokens);
    expect(await ofNext().getAccessToken(good.id)).toMatchObject({ version: 1 });
  });

  it('resealing works during a refresh', async () => {
    const connection = await newSealed();
    const held = latch();
    relay.after = held.pass;
    const refreshing = ofOld().getAccessToken(connection.id, 1);
    await held.reached;
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 1 });
    held.open();
    const token = await refreshing;
    expect(token.version).toBe(2);
    expect(await works(token.value)).toBe(true);
    // Saved by a process that knew only the old key: seen, and sealed again.
    expect(await ofBoth().rotateKeys()).toMatchObject({ rotated: 1, already: 0 });
    expect(await ofNext().getAccessToken(connection.id)).toEqual(token);
    relay.reset();
    expect(await works((await ofNext().getAccessToken(connection.id, 2)).value)).toBe(true);
  });

  it('resealing never replaces a newer pair by an older one, however often both happen at once', {
    tags: 'slow',
  }, async () => {
    const all = await Promise.all(Array.from({ length: 4 }, newSealed));
    const back = tokensOf({ sealer: createSealer([old, next]) });
    let refreshing = true;
    const refreshed = Promise.all(
      all.map(async ({ id }) => {
        for (let version = 1; version <= 8; version++) await ofBoth().getAccessToken(id, version);
      }),
    ).finally(() => {
      refreshing = false;
    });
    while (refreshing) {
      await back.rotateKeys();
      await ofBoth().rotateKeys();
    }
    await refreshed;
    await ofBoth().rotateKeys();
    for (const { id } of all) {
      const token = await ofNext().getAccessToken(id);
      expect(token.version).toBe(9);
      expect(await works(token.value)).toBe(true);
      // The refresh token is the current one, too.
      expect(await works((await ofNext().getAccessToken(id, 9)).value)).toBe(true);
    }
  });
});
