import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Disconnected } from '../../src/floor/errors.ts';
import type { Store } from '../../src/store/store.ts';
import { postToken } from '../support/library.ts';
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
  reconnect,
  refreshes,
  relay,
  saved,
  seal,
  store,
  tokensOf,
} = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('invalid_grant', () => {
  it('invalid_grant to the current token ends the connection once, for all processes', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const tokens = tokensOf();
    const errors = await Promise.all(Array.from({ length: 20 }, () => failureOf(tokens.getAccessToken(connection.id))));
    for (const error of errors) expect(error).toBeInstanceOf(Disconnected);
    await expectDisconnected(
      connection.id,
      /^the user disconnected the app or lost access at the library; connect again$/,
    );
    expect(await failureOf(tokens.getAccessToken(connection.id))).toBeInstanceOf(Disconnected);
    expect(refreshes()).toBe(1);
  });

  it('invalid_grant after another process has refreshed is ignored, and the new pair is read', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.before = held.pass;
    const call = tokensOf().getAccessToken(connection.id);
    await held.reached;
    const answer = await postToken(library, {
      grant_type: 'refresh_token',
      refresh_token: connection.grant.refresh_token,
    });
    const pair = (await answer.json()) as typeof connection.grant;
    expect(await store.connections.saveRefreshed(connection.id, 1, seal(connection.user.id, pair), 60_000)).toBe(true);
    held.open();
    expect(await call).toEqual({ value: pair.access_token, version: 2 });
    expect(refreshes()).toBe(1);
    await expectStillConnected(connection.id);
  });

  it('invalid_grant to a token that a reconnect has replaced is ignored', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const held = latch();
    relay.after = held.pass;
    const call = tokensOf().getAccessToken(connection.id);
    await held.reached;
    const grant = await reconnect(connection);
    held.open();
    expect(await call).toEqual({ value: grant.access_token, version: 2 });
    await expectStillConnected(connection.id);
  });

  it('invalid_grant does not end a reconnect that comes at the same time', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    let grant: { access_token: string } | undefined;
    const end: Store['connections']['end'] = async (...args) => {
      grant = await reconnect(connection);
      return store.connections.end(...args);
    };
    const tokens = tokensOf({ store: { ...store, connections: { ...store.connections, end } } });
    expect(await tokens.getAccessToken(connection.id)).toEqual({ value: grant!.access_token, version: 2 });
    await expectStillConnected(connection.id);
  });

  it('invalid_grant ends the connection once the database is back, if it was not available', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const broken = {
      ...store,
      connections: { ...store.connections, end: () => Promise.reject(new Error('the database is away')) },
    };
    const error = await failureOf(tokensOf({ store: broken, leaseMs: 300 }).getAccessToken(connection.id));
    expect(error).not.toBeInstanceOf(Disconnected);
    await expectStillConnected(connection.id);
    expect(await failureOf(tokensOf({ leaseMs: 300 }).getAccessToken(connection.id))).toBeInstanceOf(Disconnected);
    expect(await saved(connection.id)).toMatchObject({ status: 'disconnected' });
  });
});

describe('a reconnect', () => {
  it('a reconnect during a refresh of tokens wins', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const call = tokensOf().getAccessToken(connection.id);
    await held.reached;
    const grant = await reconnect(connection);
    held.open();
    expect(await call).toEqual({ value: grant.access_token, version: 2 });
    expect((await saved(connection.id)).pair).toEqual({
      accessToken: grant.access_token,
      refreshToken: grant.refresh_token,
      clientId: library.clientId,
    });
    await expectStillConnected(connection.id);
  });

  it('a reconnect after a disconnect gives tokens again', async () => {
    const connection = await newConnection();
    await admin.endConnections();
    const tokens = tokensOf();
    await failureOf(tokens.getAccessToken(connection.id));
    const grant = await reconnect(connection);
    expect(await tokens.getAccessToken(connection.id)).toMatchObject({ value: grant.access_token });
  });
});

describe('a disconnect by the operator', () => {
  it('a disconnect by the operator ends the connection here and at the library, and is reported once', async () => {
    const connection = await newConnection();
    const tokens = tokensOf();
    const both = await Promise.all([tokens.disconnect(connection.id), tokensOf().disconnect(connection.id)]);
    expect(both.filter(({ ended }) => ended)).toEqual([{ ended: true, revoked: true }]);
    expect(await tokens.disconnect(connection.id)).toEqual({ ended: false, revoked: false });
    await expectDisconnected(connection.id, /^disconnected by the operator$/);
    const answer = await postToken(library, {
      grant_type: 'refresh_token',
      refresh_token: connection.grant.refresh_token,
    });
    expect(answer.status).toBe(400);
    expect(relay.requests.map(({ path }) => path)).toEqual(['/api/oauth/revoke']);
  });

  it('a disconnect by the operator ends the connection even if the library cannot be reached', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.writeHead(500).end();
    expect(await tokensOf().disconnect(connection.id)).toEqual({ ended: true, revoked: false });
    expect(await saved(connection.id)).toMatchObject({ status: 'disconnected', tokens: null });
    expect(lines).toContainEqual(expect.objectContaining({ event: 'grant.revoke_failed' }));
  });

  it('a disconnect by the operator revokes the grant although the library first answers 503', async () => {
    const connection = await newConnection();
    relay.instead = (response) => {
      relay.instead = undefined;
      response.writeHead(503).end();
    };
    expect(await tokensOf().disconnect(connection.id)).toEqual({ ended: true, revoked: true });
    expect(relay.requests).toHaveLength(2);
  });

  it('a disconnect by the operator revokes the token that a refresh has just saved', async () => {
    const connection = await newConnection();
    const end: Store['connections']['end'] = async (...args) => {
      await tokensOf({ instance: 'other' }).getAccessToken(connection.id);
      return store.connections.end(...args);
    };
    const tokens = tokensOf({ store: { ...store, connections: { ...store.connections, end } } });
    expect(await tokens.disconnect(connection.id)).toEqual({ ended: true, revoked: true });
    const { body } = relay.requests.find(({ path }) => path === '/api/oauth/revoke')!;
    expect(new URLSearchParams(body).get('token')).not.toBe(connection.grant.refresh_token);
  });

  it('a disconnect by the operator during a refresh revokes the new token too', async () => {
    const connection = await newConnection();
    const held = latch();
    relay.after = held.pass;
    const tokens = tokensOf();
    const call = tokens.getAccessToken(connection.id);
    await held.reached;
    relay.after = undefined;
    await tokens.disconnect(connection.id);
    held.open();
    expect(await failureOf(call)).toBeInstanceOf(Disconnected);
    const revoked = relay.requests
      .filter(({ path }) => path === '/api/oauth/revoke')
      .map(({ body }) => new URLSearchParams(body).get('token'));
    expect(revoked).toHaveLength(2);
    expect(revoked[0]).toBe(connection.grant.refresh_token);
    expect(revoked[1]).not.toBe(connection.grant.refresh_token);
    await expectDisconnected(connection.id, /^disconnected by the operator$/);
  });
});
