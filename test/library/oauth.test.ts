import { afterAll, describe, expect, it } from 'vitest';
import { authorizeUrl, basic, connect, pkce, postToken, REDIRECT_URI, startTestLibrary } from '../support/library.ts';
import { error, requestsTo } from './oauth-requests.ts';

const { library, admin } = await startTestLibrary();
const { authorize, newCode, exchange, refresh, me } = requestsTo(library);
afterAll(() => library.close());

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
