import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Disconnected, RetryLater, reasonOf } from '../../src/floor/errors.ts';
import { Unanswered } from '../../src/oauth/client.ts';
import type { Relay } from './relay.ts';
import { failureOf, lost, newTokensGround, type Options } from './tokens-ground.ts';

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
  tokensOf,
} = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('errors that do not end a connection', () => {
  const answer =
    (status: number, body = '', headers: Record<string, string> = {}): Relay['instead'] =>
    (response) =>
      response.writeHead(status, headers).end(body);
  const cases: [string, Options, Relay['instead']][] = [
    ['a library that does not listen', { apiUrl: 'http://127.0.0.1:9' }, undefined],
    ['a dropped connection', {}, (response) => response.socket?.destroy()],
    ['no answer in time', { timeoutMs: 200 }, () => {}],
    ['500', {}, answer(500)],
    ['500 and invalid_grant', {}, answer(500, '{"error":"invalid_grant"}')],
    ['503', {}, answer(503, '', { 'retry-after': '1' })],
    ['429', {}, answer(429, '', { 'retry-after': '1' })],
    ['a page in HTML', {}, answer(200, '<html>')],
    ['401 invalid_client', {}, answer(401, '{"error":"invalid_client"}')],
    ['400 invalid_request', {}, answer(400, '{"error":"invalid_request"}')],
  ];
  for (const [what, options, instead] of cases) {
    it(`a refresh that fails with ${what} does not end the connection`, { tags: 'slow' }, async () => {
      const connection = await newConnection();
      relay.instead = instead;
      const errors = await Promise.all(
        Array.from({ length: 10 }, () => failureOf(tokensOf(options).getAccessToken(connection.id))),
      );
      for (const error of errors) {
        expect(error).toBeInstanceOf(RetryLater);
        // Other processes may reach the library.
        const scope = what === 'a library that does not listen' ? 'asset' : 'connection';
        expect(error).toMatchObject({ scope, cause: expect.any(Error) });
        expect(error.waitMs).toBeGreaterThan(900);
      }
      expect(lines).toContainEqual(
        expect.objectContaining({ event: 'token.refresh_failed', connectionId: connection.id, err: expect.anything() }),
      );
      await expectStillConnected(connection.id);
      relay.reset();
      expect(await tokensOf().getAccessToken(connection.id)).toMatchObject({ version: 2 });
      expect(await saved(connection.id)).toMatchObject({ refreshOwner: null, refreshUnansweredAt: null });
    });
  }

  it('a failed refresh waits as long as the library asks, but not shorter than without its request', async () => {
    for (const [status, seconds, least] of [
      [503, '600', 599_000],
      [429, '0', 900],
    ] as const) {
      const connection = await newConnection();
      relay.instead = answer(status, '', { 'retry-after': seconds });
      const error = await failureOf(tokensOf().getAccessToken(connection.id));
      expect(error.waitMs).toBeGreaterThan(least);
      relay.reset();
    }
  });

  it('invalid_grant under another LIBRARY_CLIENT_ID does not end the connection', async () => {
    const connection = await newConnection();
    const { version } = await tokensOf().getAccessToken(connection.id);
    const before = await saved(connection.id);
    relay.instead = (response) => response.writeHead(400).end('{"error":"invalid_grant"}');
    const error = await failureOf(tokensOf({ clientId: 'another app' }).getAccessToken(connection.id, version));
    expect(error).toBeInstanceOf(RetryLater);
    expect(error.message).toMatch(
      `tokens belong to LIBRARY_CLIENT_ID ${library.clientId}, and the library refused them`,
    );
    await expectStillConnected(connection.id);
    expect((await saved(connection.id)).pair).toEqual(before.pair);

    relay.reset();
    expect(await tokensOf().getAccessToken(connection.id, version)).toMatchObject({ version: version + 1 });
    relay.instead = (response) => response.writeHead(400).end('{"error":"invalid_grant"}');
    await expect(tokensOf().getAccessToken(connection.id, version + 1)).rejects.toThrow(Disconnected);
  });

  it('the wait for the next refresh grows with each failure, unless the library names a time', async () => {
    const connection = await newConnection();
    const tokens = tokensOf();
    relay.instead = (response) => response.writeHead(500).end();
    const waits: number[] = [];
    for (let i = 0; i < 10; i++) {
      const error = (await failureOf(tokens.getAccessToken(connection.id))) as RetryLater;
      waits.push(error.waitMs);
    }
    expect(waits[0]).toBeLessThan(3000);
    expect(waits[3]).toBeGreaterThan(10_000);
    expect(waits[9]).toBeGreaterThan(110_000);
    expect(waits[9]).toBeLessThan(160_000);
    relay.instead = (response) => response.writeHead(429, { 'retry-after': '600' }).end();
    const found = (await failureOf(tokens.getAccessToken(connection.id))) as RetryLater;
    expect(found.waitMs).toBeGreaterThanOrEqual(600_000);
  });
});

describe('a lost answer to a refresh', () => {
  const grants = async () => (await admin.connections()).reduce((sum, { refreshTokens }) => sum + refreshTokens, 0);

  it('a lost answer to a refresh after a rotation is recorded, and ends the connection with that reason', async () => {
    const before = await grants();
    const connection = await newConnection();
    await admin.setFaults({ endpoint: 'token', dropAnswer: true, times: 1 });
    const tokens = tokensOf({ apiUrl: library.apiUrl });
    const first = await failureOf(tokens.getAccessToken(connection.id));
    expect(first).toBeInstanceOf(RetryLater);
    expect(first.cause).toBeInstanceOf(Unanswered);
    expect(await saved(connection.id)).toMatchObject({
      status: 'active',
      refreshOwner: null,
      refreshUnansweredAt: expect.any(Date),
    });
    expect(lines).toContainEqual(expect.objectContaining({ event: 'token.refresh_failed', unanswered: true }));
    const second = await failureOf(tokens.getAccessToken(connection.id));
    expect(second).toBeInstanceOf(Disconnected);
    expect(reasonOf(second)).toMatch(lost);
    await expectDisconnected(connection.id, lost);
    // The lost pair does not stay valid at the library.
    expect(await grants()).toBe(before);
  });

  it('a refresh that never reached the library costs nothing: the old token is tried again', async () => {
    const connection = await newConnection();
    relay.before = async (response) => {
      response.destroy();
    };
    const first = await failureOf(tokensOf().getAccessToken(connection.id));
    expect(first.cause).toBeInstanceOf(Unanswered);
    expect(await saved(connection.id)).toMatchObject({ status: 'active', refreshUnansweredAt: expect.any(Date) });
    relay.reset();
    expect(await tokensOf().getAccessToken(connection.id)).toMatchObject({ version: 2 });
    expect(refreshes()).toBe(1);
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: null });
    await expectStillConnected(connection.id);
  });

  it('a lost answer to a refresh is still known after an outage, when the library refuses the token', async () => {
    const connection = await newConnection();
    let response: { destroy(): void } | undefined;
    relay.before = async (it) => {
      response = it;
    };
    relay.after = async () => {
      response!.destroy();
    };
    await failureOf(tokensOf().getAccessToken(connection.id));
    relay.reset();
    for (const status of [503, 429]) {
      relay.instead = (response) => response.writeHead(status).end();
      expect(await failureOf(tokensOf().getAccessToken(connection.id))).toBeInstanceOf(RetryLater);
    }
    relay.reset();
    expect(await failureOf(tokensOf().getAccessToken(connection.id))).toBeInstanceOf(Disconnected);
    expect(refreshes()).toBe(1);
    await expectDisconnected(connection.id, lost);
  });

  it('a lost answer to a refresh is forgotten after the next successful refresh', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.writeHead(502).end();
    await failureOf(tokensOf().getAccessToken(connection.id));
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: expect.any(Date) });
    relay.reset();
    await tokensOf().getAccessToken(connection.id);
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: null });
  });

  it('a lost answer to a refresh is forgotten after a reconnect', async () => {
    const connection = await newConnection();
    relay.instead = (response) => response.writeHead(502).end();
    await failureOf(tokensOf().getAccessToken(connection.id));
    relay.reset();
    await reconnect(connection);
    expect(await saved(connection.id)).toMatchObject({ refreshUnansweredAt: null, status: 'active' });
  });
});
