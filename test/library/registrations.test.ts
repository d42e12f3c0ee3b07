import { afterAll, describe, expect, it } from 'vitest';
import { adminOf, basic, connect, postToken, REDIRECT_URI, startTestLibrary } from '../support/library.ts';
import { error, requestsTo } from './oauth-requests.ts';

const { library, admin } = await startTestLibrary();
const { newCode, exchange, me, revoke } = requestsTo(library);
afterAll(() => library.close());

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
