import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Admin,
  adminOf,
  authorizeUrl,
  basic,
  connect,
  type Library,
  pkce,
  postToken,
  REDIRECT_URI,
  startTestLibrary,
} from '../support/library.ts';

let library: Library;
let admin: Admin;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
});
afterAll(() => library.close());

async function authorize(
  query: Record<string, string | undefined>,
): Promise<{ status: number; answer: URLSearchParams }> {
  const response = await fetch(authorizeUrl(library, query), { redirect: 'manual' });
  const location = response.headers.get('location');
  return { status: response.status, answer: new URL(location ?? 'http://none').searchParams };
}

async function newCode(): Promise<{ code: string; verifier: string }> {
  const { verifier, challenge } = pkce();
  const { answer } = await authorize({ code_challenge: challenge });
  return { code: answer.get('code')!, verifier };
}

function exchange(code: string, verifier: string, redirectUri = REDIRECT_URI): Promise<Response> {
  return postToken(library, {
    grant_type: 'authorization_code',
    code,
    redirect_uri: redirectUri,
    code_verifier: verifier,
  });
}

function refresh(token: string): Promise<Response> {
  return postToken(library, { grant_type: 'refresh_token', refresh_token: token });
}

function me(token: string): Promise<Response> {
  return fetch(`${library.apiUrl}/api/v1/me`, { headers: { authorization: `Bearer ${token}` } });
}

function revoke(token: string, authorization = basic(library)): Promise<Response> {
  const body = new URLSearchParams({ token });
  return fetch(`${library.apiUrl}/api/oauth/revoke`, { method: 'POST', headers: { authorization }, body });
}

async function error(response: Response): Promise<unknown> {
  return { status: response.status, error: ((await response.json()) as { error: string }).error };
}

describe('authorize (4.1)', () => {
  it('authorize redirects with a code and the state', async () => {
    const { status, answer } = await authorize({ code_challenge: pkce().challenge });
    expect(status).toBe(302);
    expect(answer.get('code')).toMatch(/^svcc_/);
    expect(answer.get('state')).toBe('the state');
  });

  it.each([
    ['no challenge', { code_challenge: undefined }, 'invalid_request'],
    ['a plain challenge', { code_challenge_method: 'plain' }, 'invalid_request'],
    ['no challenge method', { code_challenge_method: undefined }, 'invalid_request'],
    ['a challenge of the wrong length', { code_challenge: 'short' }, 'invalid_request'],
    ['another response type', { response_type: 'token' }, 'unsupported_response_type'],
  ])('authorize with %s redirects with an error', async (_what, query, code) => {
    const { status, answer } = await authorize({ code_challenge: pkce().challenge, ...query });
    expect(status).toBe(302);
    expect(Object.fromEntries(answer)).toMatchObject({ error: code, state: 'the state' });
  });

  it.each([
    ['an unknown app', { client_id: 'app_unknown' }],
    ['an address that is not registered', { redirect_uri: 'https://evil.example/oauth/callback' }],
    ['an address with more at its end', { redirect_uri: `${REDIRECT_URI}/` }],
    ['no address', { redirect_uri: undefined }],
  ])('authorize with %s shows a page and does not redirect', async (_what, query) => {
    const url = authorizeUrl(library, { code_challenge: pkce().challenge, ...query });
    const response = await fetch(url, { redirect: 'manual' });
    expect(response.status).toBe(400);
    expect(response.headers.get('content-type')).toMatch('text/html');
    expect(response.headers.get('location')).toBeNull();
  });
});

describe('token (4.2)', () => {
  it('a code is exchanged for tokens', async () => {
    const { code, verifier } = await newCode();
    const response = await exchange(code, verifier);
    expect(response.status).toBe(200);
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(await response.json()).toEqual({
      access_token: expect.stringMatching(/^svca_/),
      token_type: 'Bearer',
      expires_in: 3600,
      refresh_token: expect.stringMatching(/^svcr_/),
      scope: 'assets:read',
    });
  });

  it('the token endpoint accepts JSON and credentials in the body', async () => {
    const { code, verifier } = await newCode();
    const response = await fetch(`${library.apiUrl}/api/oauth/token`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        grant_type: 'authorization_code',
        code,
        redirect_uri: REDIRECT_URI,
        code_verifier: verifier,
        client_id: library.clientId,
        client_secret: library.clientSecret,
      }),
    });
    expect(response.status).toBe(200);
  });

  it('a code works once, and its second use ends the connection', async () => {
    const { code, verifier } = await newCode();
    const { access_token } = (await (await exchange(code, verifier)).json()) as { access_token: string };
    expect((await me(access_token)).status).toBe(200);
    expect(await error(await exchange(code, verifier))).toEqual({ status: 400, error: 'invalid_grant' });
    expect((await me(access_token)).status).toBe(401);
  });

  it('a code expires after ten minutes', async () => {
    const { code, verifier } = await newCode();
    await admin.advanceClock(601);
    expect(await error(await exchange(code, verifier))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('a code works only with its verifier and its redirect URI', async () => {
    const { code, verifier } = await newCode();
    expect(await error(await exchange(code, pkce().verifier))).toEqual({ status: 400, error: 'invalid_grant' });
    expect(await error(await exchange(code, verifier, 'http://localhost/'))).toEqual({
      status: 400,
      error: 'invalid_grant',
    });
    expect((await exchange(code, verifier)).status).toBe(200);
  });

  it.each([42, 129])('a verifier of %i characters is refused', async (length) => {
    const { code } = await newCode();
    expect(await error(await exchange(code, 'v'.repeat(length)))).toEqual({ status: 400, error: 'invalid_request' });
  });

  it('wrong client credentials get 401', async () => {
    const response = await fetch(`${library.apiUrl}/api/oauth/token`, {
      method: 'POST',
      headers: { authorization: `Basic ${btoa(`${library.clientId}:svcs_wrong`)}` },
      body: new URLSearchParams({ grant_type: 'refresh_token', refresh_token: 'x' }),
    });
    expect(response.headers.get('www-authenticate')).toMatch(/^Basic/);
    expect(await error(response)).toEqual({ status: 401, error: 'invalid_client' });
  });

  it('client credentials of two apps, or in two places, are refused', async () => {
    for (const more of [
      { client_id: 'app_other' },
      { client_id: library.clientId, client_secret: library.clientSecret },
    ]) {
      const response = await postToken(library, { grant_type: 'refresh_token', refresh_token: 'x', ...more });
      expect(await error(response)).toEqual({ status: 400, error: 'invalid_request' });
    }
  });

  it('other grant types and invalid bodies are refused', async () => {
    expect(await error(await postToken(library, { grant_type: 'password' }))).toEqual({
      status: 400,
      error: 'unsupported_grant_type',
    });
    const response = await fetch(`${library.apiUrl}/api/oauth/token`, {
      method: 'POST',
      headers: { authorization: basic(library), 'content-type': 'application/json' },
      body: '{',
    });
    expect(await error(response)).toEqual({ status: 400, error: 'invalid_request' });
  });

  it('a refresh returns a new refresh token, and the old one stops working', async () => {
    const first = await connect(library);
    const second = (await (await refresh(first.refresh_token)).json()) as typeof first;
    expect(second.refresh_token).not.toBe(first.refresh_token);
    expect((await me(second.access_token)).status).toBe(200);
    expect(await error(await refresh(first.refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
    expect((await refresh(second.refresh_token)).status).toBe(200);
  });

  it('only one of several simultaneous refreshes gets new tokens', async () => {
    const { refresh_token } = await connect(library);
    const answers = await Promise.all(Array.from({ length: 10 }, () => refresh(refresh_token)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
  });

  it('an access token expires after an hour', async () => {
    const { access_token, refresh_token } = await connect(library);
    // The clock also runs by itself.
    await admin.advanceClock(3570);
    expect((await me(access_token)).status).toBe(200);
    await admin.advanceClock(31);
    expect((await me(access_token)).status).toBe(401);
    expect((await refresh(refresh_token)).status).toBe(200);
  });
});

describe('the end of a connection (3.2, 4.3)', () => {
  it('revoke answers 200 with an empty object, and ends the connection', async () => {
    const { access_token, refresh_token } = await connect(library);
    const response = await revoke(refresh_token);
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({});
    expect((await me(access_token)).status).toBe(401);
    expect(await error(await refresh(refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('revoke answers the same to an unknown token and to wrong credentials, and ends nothing', async () => {
    const { access_token, refresh_token } = await connect(library);
    for (const response of [await revoke('svcr_unknown'), await revoke(refresh_token, 'Basic eDp5')]) {
      expect(response.status).toBe(200);
      expect(await response.json()).toEqual({});
    }
    expect((await me(access_token)).status).toBe(200);
  });

  it('disconnecting the app ends the connection', async () => {
    const { access_token, refresh_token } = await connect(library);
    await admin.endConnections('usr_ada');
    expect((await me(access_token)).status).toBe(401);
    expect(await error(await refresh(refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('a company that the user can no longer read leaves /me, and losing the last one ends the connection', async () => {
    const user = await admin.addUser({ name: 'Lost', email: 'lost@example.com' });
    const kept = await admin.addCompany({ name: 'Kept', userIds: [user.id] });
    const lost = await admin.addCompany({ name: 'Lost', userIds: [user.id] });
    const { access_token, refresh_token } = await connect(library, 'lost@example.com');

    await admin.setAccess(lost.id, user.id, false);
    expect(await (await me(access_token)).json()).toMatchObject({ companies: [kept] });

    await admin.setAccess(kept.id, user.id, false);
    expect((await me(access_token)).status).toBe(401);
    expect(await error(await refresh(refresh_token))).toEqual({ status: 400, error: 'invalid_grant' });
  });

  it('the admin API expires access tokens, and the connection continues', async () => {
    const { access_token, refresh_token } = await connect(library);
    const [before] = await admin.connections();
    await admin.expireTokens();
    expect((await me(access_token)).status).toBe(401);
    expect((await refresh(refresh_token)).status).toBe(200);
    expect((await admin.connections())[0]!.refreshTokens).toBe(before!.refreshTokens);
  });
});

describe('registration (2.1, 2.2)', () => {
  const app = { name: 'Another', websiteUrl: 'https://another.example' };

  it('a registered app gets a client_id and a secret, which works until it is rotated', async () => {
    const { clientId, clientSecret } = await admin.addApp({ ...app, redirectUris: ['https://another.example/back'] });
    expect(clientSecret).toMatch(/^svcs_/);
    const attempt = async (secret: string) => {
      const response = await fetch(`${library.apiUrl}/api/oauth/token`, {
        method: 'POST',
        headers: { authorization: `Basic ${btoa(`${clientId}:${secret}`)}` },
        body: new URLSearchParams({ grant_type: 'refresh_token', refresh_token: 'svcr_x' }),
      });
      return ((await response.json()) as { error: string }).error;
    };
    expect(await attempt(clientSecret)).toBe('invalid_grant');
    const rotated = await admin.rotateSecret(clientId);
    expect(await attempt(clientSecret)).toBe('invalid_client');
    expect(await attempt(rotated.clientSecret)).toBe('invalid_grant');
  });

  it('codes and tokens of another app are refused', async () => {
    const other = await admin.addApp({ ...app, redirectUris: [REDIRECT_URI] });
    const { code, verifier } = await newCode();
    const { refresh_token, access_token } = await connect(library);
    for (const fields of [
      { grant_type: 'refresh_token', refresh_token },
      { grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI, code_verifier: verifier },
    ]) {
      expect(await error(await postToken({ ...library, ...other }, fields))).toEqual({
        status: 400,
        error: 'invalid_grant',
      });
    }
    await revoke(refresh_token, basic({ ...library, ...other }));
    expect((await me(access_token)).status).toBe(200);
    expect((await exchange(code, verifier)).status).toBe(200);
  });

  it.each([['http://elsewhere.example/back'], ['https://x.example/#part'], ['ftp://localhost/'], ['back'], []])(
    'the redirect URI %s is refused',
    async (...redirectUris) => {
      await expect(admin.addApp({ ...app, redirectUris })).rejects.toThrow('400');
      await expect(startTestLibrary({ redirectUris })).rejects.toThrow('cannot be registered');
    },
  );

  it.each(['http://localhost:8080/back', 'http://127.0.0.1/back', 'http://[::1]:9/', 'https://x.example/a?b=c'])(
    'the redirect URI %s is accepted',
    async (uri) => {
      await admin.addApp({ ...app, redirectUris: [uri] });
    },
  );
});

it('the admin API refuses requests from pages in a browser', async () => {
  const response = await fetch(`${library.adminUrl}/users`, { headers: { origin: 'http://evil.example' } });
  expect(response.status).toBe(403);
  expect(await adminOf(library.adminUrl!).users()).not.toEqual([]);
});
