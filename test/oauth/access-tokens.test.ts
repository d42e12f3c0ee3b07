import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { Disconnected } from '../../src/floor/errors.ts';
import { createSealer } from '../../src/oauth/seal.ts';
import { createAccess } from '../../src/pacing/with-token.ts';
import { LibraryClient } from '../../src/source/client.ts';
import { createAgent } from '../../src/source/http.ts';
import type { Store } from '../../src/store/store.ts';
import { until } from '../support/until.ts';
import { latch } from './relay.ts';
import { failureOf, newTokensGround } from './tokens-ground.ts';

const ground = await newTokensGround();
const {
  admin,
  expectDisconnected,
  expectStillConnected,
  library,
  lines,
  newConnection,
  refreshes,
  relay,
  saved,
  sql,
  startProcess,
  store,
  tokensOf,
  works,
} = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('an access token', () => {
  it('an access token that has not expired is returned without a request to the library', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    expect(await tokensOf().getAccessToken(connection.id)).toEqual({
      value: connection.grant.access_token,
      version: 1,
    });
    expect(refreshes()).toBe(0);
  });

  it('an access token that has expired is refreshed, and the new pair is saved before it is used', async () => {
    const connection = await newConnection();
    const token = await tokensOf().getAccessToken(connection.id);
    expect(token).toEqual({ value: expect.stringMatching(/^svca_/), version: 2 });
    expect(await works(token.value)).toBe(true);
    const record = await saved(connection.id);
    expect(record).toMatchObject({
      tokenVersion: 2,
      refreshOwner: null,
      refreshUntil: null,
      refreshUnansweredAt: null,
    });
    expect(record.pair.accessToken).toBe(token.value);
    expect(record.pair.refreshToken).not.toBe(connection.grant.refresh_token);
    expect(record.accessExpiresAt!.getTime()).toBeGreaterThan(Date.now() + 3_500_000);
  });

  it('an access token and its refresh token are encrypted in the database', async () => {
    const connection = await newConnection();
    const { value } = await tokensOf().getAccessToken(connection.id);
    const { rows } = await sql.query('SELECT c::text FROM connections c WHERE id = $1', [connection.id]);
    const { pair } = await saved(connection.id);
    for (const secret of [value, pair.refreshToken, 'svca_', 'svcr_']) expect(rows[0].c).not.toContain(secret);
  });

  it('an access token that lives two seconds is used, and refreshed after that', async () => {
    const connection = await newConnection();
    let count = 0;
    relay.instead = (response) =>
      response.end(JSON.stringify({ access_token: `svca_${++count}`, expires_in: 2, refresh_token: `svcr_${count}` }));
    const tokens = tokensOf();
    const began = Date.now();
    expect((await tokens.getAccessToken(connection.id)).value).toBe('svca_1');
    expect((await saved(connection.id)).accessExpiresAt!.getTime()).toBeGreaterThan(began + 1000);
    await until('its end', async () => (await saved(connection.id)).accessExpiresAt!.getTime() < Date.now());
    expect((await tokens.getAccessToken(connection.id)).value).toBe('svca_2');
  });

  it('an access token expires by the clock of the database, not by those of processes', async () => {
    const connection = await newConnection();
    relay.instead = (response) =>
      response.end(JSON.stringify({ access_token: 'svca_1', expires_in: 300, refresh_token: 'svcr_1' }));
    const asProcess = async (ms: number) => {
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
      return tokensOf()
        .getAccessToken(connection.id)
        .finally(() => vi.useRealTimers());
    };
    expect(await asProcess(-600_000)).toMatchObject({ version: 2 });
    expect(await asProcess(600_000)).toMatchObject({ version: 2 });
    await sql.query('UPDATE connections SET access_expires_at = now() WHERE id = $1', [connection.id]);
    expect(await asProcess(-600_000)).toMatchObject({ version: 3 });
  });

  it('an access token can come without a new refresh token: the old one stays', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.end(JSON.stringify({ access_token: 'svca_x', expires_in: 3600 }));
    await tokensOf().getAccessToken(connection.id);
    expect((await saved(connection.id)).pair).toEqual({
      accessToken: 'svca_x',
      refreshToken: connection.grant.refresh_token,
      clientId: library.clientId,
    });
  });

  it('an access token whose encryption key is missing does not end the connection', async () => {
    const connection = await newConnection();
    const error = await failureOf(tokensOf({ sealer: createSealer([randomBytes(32)]) }).getAccessToken(connection.id));
    expect(error).not.toBeInstanceOf(Disconnected);
    expect(error.message).toContain('ENCRYPTION_KEYS');
    await expectStillConnected(connection.id);
  });

  it('an access token of a connection that is unknown or has ended is refused', async () => {
    expect(await failureOf(tokensOf().getAccessToken('nobody'))).toBeInstanceOf(Disconnected);
  });
});

describe('concurrent callers', () => {
  it('concurrent callers in three processes cause exactly one refresh, and all get the same token', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = held.pass;
    const processes = await Promise.all([33, 33, 34].map((callers) => startProcess(connection.id, { callers })));
    for (const each of processes) each.go();
    // The refresh is delayed until all others wait for it.
    await Promise.all([held.reached, ...processes.map((each) => each.calling())]);
    held.open();
    const results = (await Promise.all(processes.map((each) => each.results()))).flat();
    expect(results).toHaveLength(100);
    const record = await saved(connection.id);
    expect(new Set(results)).toEqual(new Set([`2 ${record.pair.accessToken}`]));
    expect(refreshes()).toBe(1);
    expect(await works(record.pair.accessToken)).toBe(true);
  });

  it('concurrent callers in three processes learn of a disconnect by one refresh, one event and one log line', {
    tags: 'slow',
  }, async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const held = latch();
    relay.before = held.pass;
    const processes = await Promise.all([33, 33, 34].map((callers) => startProcess(connection.id, { callers })));
    for (const each of processes) each.go();
    await Promise.all([held.reached, ...processes.map((each) => each.calling())]);
    held.open();
    const results = (await Promise.all(processes.map((each) => each.results()))).flat();
    expect(results).toEqual(Array(100).fill('Disconnected'));
    expect(refreshes()).toBe(1);
    const found = processes.flatMap((each) => each.logLines()).filter(({ msg }) => msg === 'connection disconnected');
    lines.push(...(found as typeof lines));
    await expectDisconnected(connection.id, /^the user disconnected the app or lost access/);
  });

  it('concurrent callers that were refused with an unexpired token cause one refresh', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    const tokens = tokensOf();
    const { version } = await tokens.getAccessToken(connection.id);
    const next = await Promise.all(Array.from({ length: 50 }, () => tokens.getAccessToken(connection.id, version)));
    expect(new Set(next.map((token) => token.version))).toEqual(new Set([2]));
    // Later callers were refused with the same token.
    expect(await tokens.getAccessToken(connection.id, version)).toEqual(next[0]);
    expect(refreshes()).toBe(1);
  });

  it('concurrent callers whose requests get 401 send them once more, with the next token', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    const agent = createAgent({ connections: 10 });
    const client = new LibraryClient({ apiUrl: library.apiUrl, dispatcher: agent });
    const withToken = createAccess(tokensOf());
    const signal = AbortSignal.timeout(20_000);
    await admin.expireTokens();
    await admin.clearRequests();
    const all = Array.from({ length: 20 }, () => withToken(connection.id, (token) => client.me({ token, signal })));
    for (const me of await Promise.all(all)) expect(me.user.id).toBe('usr_ada');
    expect(refreshes()).toBe(1);
    expect((await admin.requests({ endpoint: 'me', status: 401 })).length).toBeLessThanOrEqual(20);
    expect(await admin.requests({ endpoint: 'me', status: 200 })).toHaveLength(20);
    await agent.destroy();
  });

  it('a stop waits for the refresh that is under way, however many callers wait for it', async () => {
    const connection = await newConnection(new Date(Date.now() + 60_000));
    let reads = 0;
    const storedTokens: Store['connections']['storedTokens'] = (id) => {
      reads++;
      return store.connections.storedTokens(id);
    };
    const tokens = tokensOf({ store: { ...store, connections: { ...store.connections, storedTokens } } });
    const held = latch();
    relay.after = held.pass;
    // These arrive while the first one reads: all are refused for the same reason.
    const calls = [tokens.getAccessToken(connection.id)];
    for (let i = 0; i < 50; i++) calls.push(tokens.getAccessToken(connection.id, 1));
    await held.reached;
    let settled = false;
    const settling = tokens.end().then(() => {
      settled = true;
    });
    expect(await saved(connection.id)).toMatchObject({ tokenVersion: 1 });
    expect(settled).toBe(false);
    held.open();
    await settling;
    expect(await saved(connection.id)).toMatchObject({ tokenVersion: 2 });
    await Promise.all(calls);
    expect(refreshes()).toBe(1);
    // They wait for one another, and do not overload the database.
    expect(reads).toBe(2);
  });

  it('after a stop has begun, no other refresh begins', async () => {
    const [connection, other] = [
      await newConnection(new Date(Date.now() - 60_000)),
      await newConnection(new Date(Date.now() - 60_000)),
    ];
    const tokens = tokensOf();
    const held = latch();
    relay.after = held.pass;
    const refreshing = tokens.getAccessToken(connection.id);
    await held.reached;
    const ending = tokens.end();
    await expect(tokens.getAccessToken(other.id)).rejects.toThrow('shutting down');
    held.open();
    await Promise.all([refreshing, ending]);
    expect(refreshes()).toBe(1);
    expect(await saved(connection.id)).toMatchObject({ tokenVersion: 2 });
    expect(await saved(other.id)).toMatchObject({ tokenVersion: 1 });
  });
});
