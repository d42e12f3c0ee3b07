import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { reasonOf } from '../../src/floor/errors.ts';
import { OAuthClient, type OAuthClientOptions, OAuthError, Unanswered } from '../../src/oauth/client.ts';
import {
  type Admin,
  connect,
  type Library,
  postToken,
  startTestLibrary,
  type TokenAnswer,
} from '../support/library.ts';
import { freePort } from '../support/ports.ts';
import { type Relay, startRelay } from './relay.ts';

let library: Library;
let admin: Admin;
let relay: Relay;
let tokens: TokenAnswer;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  relay = await startRelay(library.apiUrl);
  tokens = await connect(library);
});
afterEach(() => relay.reset());
afterAll(async () => {
  await relay.close();
  await library.close();
});

const clientWith = (options: Partial<OAuthClientOptions> = {}) =>
  new OAuthClient({ ...library, apiUrl: relay.url, ...options });

/** The result of a refresh with this answer. */
async function refreshWith(status: number, body: unknown, headers: Record<string, string> = {}) {
  relay.instead = (response) =>
    response
      .writeHead(status, { 'content-type': 'application/json', ...headers })
      .end(typeof body === 'string' ? body : JSON.stringify(body));
  return clientWith().refresh('svcr_x');
}
const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => {
      throw new Error('it was no failure');
    },
    (error) => error,
  );
const good = { access_token: 'svca_1', token_type: 'Bearer', expires_in: 3600, refresh_token: 'svcr_1', scope: 's' };
const lifeOf = (grant: { accessMs: number }) => grant.accessMs / 1000;

describe('a token refresh', () => {
  it('a token refresh sends the token as a form, with HTTP Basic', async () => {
    const grant = await clientWith().refresh(tokens.refresh_token);
    const [request] = relay.requests;
    expect(request?.headers).toMatchObject({
      'content-type': 'application/x-www-form-urlencoded',
      'accept-encoding': 'identity',
      authorization: `Basic ${Buffer.from(`${library.clientId}:${library.clientSecret}`).toString('base64')}`,
    });
    expect(Object.fromEntries(new URLSearchParams(request?.body))).toEqual({
      grant_type: 'refresh_token',
      refresh_token: tokens.refresh_token,
    });
    expect(grant).toMatchObject({
      accessToken: expect.stringMatching(/^svca_/),
      refreshToken: expect.stringMatching(/^svcr_/),
    });
    expect(grant.refreshToken).not.toBe(tokens.refresh_token);
    expect(lifeOf(grant)).toBeGreaterThan(3500);
    expect(lifeOf(grant)).toBeLessThanOrEqual(3540);
    tokens = { ...tokens, access_token: grant.accessToken, refresh_token: grant.refreshToken! };
  });

  it('a token refresh sends credentials in the body if HTTP Basic is ambiguous for them', async () => {
    await failureOf(clientWith({ clientSecret: 'svcs_a+b/c=:d e' }).refresh('x'));
    const [request] = relay.requests;
    expect(request?.headers.authorization).toBeUndefined();
    expect(Object.fromEntries(new URLSearchParams(request?.body))).toMatchObject({
      client_id: library.clientId,
      client_secret: 'svcs_a+b/c=:d e',
    });
  });

  it('a refresh with a spent token is refused with invalid_grant', async () => {
    const spent = tokens.refresh_token;
    const answer = await postToken(library, { grant_type: 'refresh_token', refresh_token: spent });
    tokens = (await answer.json()) as TokenAnswer;
    const error = await failureOf(clientWith().refresh(spent));
    expect(error).toBeInstanceOf(OAuthError);
    expect(error).toMatchObject({ status: 400, code: 'invalid_grant', invalidGrant: true });
  });
});

describe('an unusual token response', () => {
  const cases: [string, Record<string, unknown>, { refreshToken?: string | undefined; life: [number, number] }][] = [
    ['no refresh_token', { refresh_token: undefined }, { refreshToken: undefined, life: [3500, 3540] }],
    ['a refresh_token of null', { refresh_token: null }, { refreshToken: undefined, life: [3500, 3540] }],
    ['an empty refresh_token', { refresh_token: '' }, { refreshToken: undefined, life: [3500, 3540] }],
    ['no expires_in', { expires_in: undefined }, { life: [3500, 3540] }],
    ['an expires_in of null', { expires_in: null }, { life: [3500, 3540] }],
    ['an expires_in of 0', { expires_in: 0 }, { life: [3500, 3540] }],
    ['an expires_in below 0', { expires_in: -5 }, { life: [3500, 3540] }],
    ['an expires_in that is no number', { expires_in: 'soon' }, { life: [3500, 3540] }],
    ['an expires_in as text', { expires_in: '600' }, { life: [530, 540] }],
    ['an expires_in of 2', { expires_in: 2 }, { life: [1, 1.6] }],
    ['a huge expires_in', { expires_in: 1e300 }, { life: [86_000, 86_400] }],
    ['neither scope nor token_type', { scope: undefined, token_type: undefined }, { life: [3500, 3540] }],
    ['unknown fields and another token_type', { token_type: 'bearer', more: { of: ['it'] } }, { life: [3500, 3540] }],
  ];
  for (const [sentence, fields, expected] of cases) {
    it(`a token response with ${sentence} is accepted, because the old token is spent`, async () => {
      const grant = await refreshWith(200, { ...good, ...fields });
      const refreshToken = 'refreshToken' in expected ? expected.refreshToken : 'svcr_1';
      expect(grant).toMatchObject({ accessToken: 'svca_1', refreshToken });
      expect(lifeOf(grant)).toBeGreaterThan(expected.life[0]);
      expect(lifeOf(grant)).toBeLessThanOrEqual(expected.life[1]);
    });
  }

  it('a token response with another 2xx status is accepted', async () => {
    expect(await refreshWith(201, good)).toMatchObject({ accessToken: 'svca_1' });
  });
});

describe('an unusable token response', () => {
  const cases: [string, number, unknown, RegExp][] = [
    ['HTML', 200, '<html>Back soon</html>', /not a token response \(body\)/],
    ['an empty body', 200, '', /not a token response/],
    ['no access_token', 200, { ...good, access_token: undefined }, /\(access_token\)/],
    ['an access_token that is no text', 200, { ...good, access_token: 5 }, /\(access_token\)/],
    ['a list', 200, [good], /not a token response/],
    ['204', 204, '', /not a token response/],
    ['a redirect', 302, '', /answered 302/],
    ['500', 500, { error: 'invalid_grant' }, /answered 500 invalid_grant/],
    ['502 with HTML', 502, '<html>', /answered 502/],
    ['503', 503, '', /answered 503/],
  ];
  for (const [sentence, status, body, words] of cases) {
    it(`a token response with ${sentence} leaves it unknown whether the old token is spent`, async () => {
      const error = await failureOf(refreshWith(status, body));
      expect(error).toBeInstanceOf(Unanswered);
      expect(error.message).toMatch(words);
    });
  }

  it('a connection that closes without a token response leaves it unknown whether the old token is spent', async () => {
    relay.instead = (response) => response.socket?.destroy();
    expect(await failureOf(clientWith().refresh('x'))).toBeInstanceOf(Unanswered);
  });

  it('a connection that closes within a token response leaves it unknown whether the old token is spent', async () => {
    relay.instead = (response) => {
      response.writeHead(200, { 'content-length': '500' }).write('{"access_token":"svca_', () => {
        response.socket?.destroy();
      });
    };
    expect(await failureOf(clientWith().refresh('x'))).toBeInstanceOf(Unanswered);
  });

  it('a token response that does not come in time leaves it unknown whether the old token is spent', async () => {
    const client = clientWith({ timeoutMs: 200 });
    relay.instead = () => {};
    expect(await failureOf(client.refresh('x'))).toBeInstanceOf(Unanswered);
    relay.instead = (response) => response.writeHead(200).write('{');
    expect(await failureOf(client.refresh('x'))).toBeInstanceOf(Unanswered);
  });
});

describe('a refused refresh', () => {
  it('a refused refresh has its status and code; only 400 with invalid_grant ends a connection', async () => {
    const cases: [number, unknown, string | undefined, boolean][] = [
      [400, { error: 'invalid_grant', error_description: 'x' }, 'invalid_grant', true],
      [400, { error: 'invalid_request' }, 'invalid_request', false],
      [400, { error: { code: 'invalid_grant' } }, undefined, false],
      [400, 'invalid_grant', undefined, false],
      [400, { error: 'a <b> & so on' }, undefined, false],
      [401, { error: 'invalid_client' }, 'invalid_client', false],
      [401, { error: 'invalid_grant' }, 'invalid_grant', false],
      [403, '<html>', undefined, false],
      [404, '', undefined, false],
      [429, { error: 'invalid_grant' }, 'invalid_grant', false],
    ];
    for (const [status, body, code, invalidGrant] of cases) {
      const error = await failureOf(refreshWith(status, body));
      expect(error).toBeInstanceOf(OAuthError);
      expect(error).toMatchObject({ status, code, invalidGrant });
    }
  });

  it('a refused refresh has the wait that the library asks for', async () => {
    const error = await failureOf(refreshWith(429, {}, { 'retry-after': '60' }));
    expect(error.waitMs).toBeGreaterThanOrEqual(60_000);
    expect((await failureOf(refreshWith(429, {}))).waitMs).toBeUndefined();
  });

  it('the error of a refused refresh shows only the code of the answer', async () => {
    const error = await failureOf(refreshWith(400, { error: 'invalid_request', error_description: 'svcr_secret' }));
    expect(reasonOf(error)).toBe('refresh the access token: the library answered 400 invalid_request');
  });
});

describe('a refresh that was not sent', () => {
  it('a refresh that was certainly not sent has its own error, because the token is not spent', async () => {
    const nobody = clientWith({ apiUrl: `http://127.0.0.1:${await freePort()}` });
    const error = await failureOf(nobody.refresh('x'));
    expect(error).not.toBeInstanceOf(Unanswered);
    expect(error.code).toBe('ECONNREFUSED');
    expect(reasonOf(error)).toMatch(/^nothing listens at 127\.0\.0\.1:\d+ .*LIBRARY_API_URL$/);
  });
});

describe('a revocation', () => {
  it('a revocation ends the connection at the library', async () => {
    const { refresh_token } = await connect(library);
    const live = async () => (await admin.connections()).reduce((sum, user) => sum + user.refreshTokens, 0);
    const before = await live();
    await clientWith().revoke(refresh_token);
    expect(await live()).toBe(before - 1);
    expect(await failureOf(clientWith().refresh(refresh_token))).toMatchObject({ invalidGrant: true });
  });
});
