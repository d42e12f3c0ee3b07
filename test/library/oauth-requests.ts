import { authorizeUrl, basic, type Library, pkce, postToken, REDIRECT_URI } from '../support/library.ts';

/** Requests to the OAuth endpoints of a library, and with its access tokens. */
export function requestsTo(library: Library) {
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

  return { authorize, newCode, exchange, refresh, me, revoke };
}

/** The status and the error of an answer. */
export async function error(response: Response): Promise<unknown> {
  return { status: response.status, error: ((await response.json()) as { error: string }).error };
}
