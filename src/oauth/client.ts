import { type Dispatcher, request } from 'undici';
import { z } from 'zod';
import { reasonOf, retryAfter } from '../errors.ts';

export type OAuthClient = ReturnType<typeof createOAuthClient>;

/** A pair of tokens (spec, section 2.3). `refreshToken` is undefined when the service kept the one it has. */
export interface Grant {
  accessToken: string;
  refreshToken: string | undefined;
  /** How long the access token is used, in ms: its life less a minute (or a fifth of a short life), so that no call meets its end. */
  accessMs: number;
}

/** The service refused: HTTP status and the error code of its answer (RFC 6749, section 5.2). */
export class OAuthError extends Error {
  override readonly name = 'OAuthError';
  readonly status: number;
  readonly code: string | undefined;
  /** How long the service asked to wait, in ms. */
  readonly waitMs: number | undefined;

  constructor(what: string, status: number, code: string | undefined, waitMs?: number) {
    super(`${what}: the service answered ${status}${code ? ` ${code}` : ''}`);
    this.status = status;
    this.code = code;
    this.waitMs = waitMs;
  }

  /** The one answer that ends a connection (spec, section 7): 400 with `invalid_grant`. */
  get invalidGrant(): boolean {
    return this.status === 400 && this.code === 'invalid_grant';
  }
}

/** A refresh was sent and no usable answer came: whether the service has rotated the token is unknown. */
export class Unanswered extends Error {
  override readonly name = 'Unanswered';
}

/** Once this answer is here the token before it is spent: only an answer without an access token is of no use. */
const tokenAnswer = z.object({
  access_token: z.string().min(1),
  expires_in: z.coerce.number().positive().catch(3600),
  refresh_token: z.string().min(1).optional().catch(undefined),
});

/** Seconds. A token that is said to live longer is replaced all the same. */
const longestLife = 24 * 3600;

/** The answer to a refresh is the only place where the next token is, and is waited for as long as any proxy would. */
const refreshMs = 60_000;

/** Calls of the token and revoke endpoints (spec, sections 4.2 and 4.3). Each gives up after `timeoutMs`. */
export function createOAuthClient(options: {
  apiUrl: string;
  clientId: string;
  clientSecret: string;
  dispatcher?: Dispatcher;
  timeoutMs?: number;
}) {
  const { clientId, clientSecret } = options;
  // RFC 6749, section 2.3.1 form-encodes both halves before they are joined, the spec's words do not. Where that makes a
  // difference the credentials go into the body, which can be read in one way only.
  const basic = [clientId, clientSecret].every((part) => encodeURIComponent(part) === part);
  const authorization = `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}`;

  async function post(
    path: string,
    what: string,
    form: Record<string, string>,
    timeoutMs = options.timeoutMs ?? 20_000,
  ): Promise<unknown> {
    const response = await request(`${options.apiUrl}${path}`, {
      method: 'POST',
      headers: {
        ...(basic && { authorization }),
        'content-type': 'application/x-www-form-urlencoded',
        accept: 'application/json',
        'accept-encoding': 'identity',
      },
      body: new URLSearchParams({
        ...form,
        ...(!basic && { client_id: clientId, client_secret: clientSecret }),
      }).toString(),
      signal: AbortSignal.timeout(timeoutMs),
      headersTimeout: timeoutMs,
      ...(options.dispatcher && { dispatcher: options.dispatcher }),
    });
    const text = await response.body.text();
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = undefined;
    }
    const { statusCode, headers } = response;
    if (statusCode < 200 || statusCode > 299) {
      const code = z.object({ error: z.string().regex(/^[\w-]{1,64}$/) }).safeParse(body).data?.error;
      throw new OAuthError(what, statusCode, code, retryAfter(headers['retry-after'], headers.date)?.waitMs);
    }
    return body;
  }

  function grantOf(body: unknown, what: string): Grant {
    const answer = tokenAnswer.safeParse(body);
    if (!answer.success) {
      const field = answer.error.issues[0]?.path.join('.') || 'body';
      throw new Error(`${what}: the service's answer is not a token response (${field})`);
    }
    const life = Math.min(answer.data.expires_in, longestLife) * 1000;
    return {
      accessToken: answer.data.access_token,
      refreshToken: answer.data.refresh_token,
      accessMs: life - Math.min(60_000, life / 5),
    };
  }

  return {
    /** @throws OAuthError */
    async exchangeCode(exchange: { code: string; redirectUri: string; verifier: string }): Promise<Grant> {
      const what = 'exchange the authorization code';
      const body = await post('/api/oauth/token', what, {
        grant_type: 'authorization_code',
        code: exchange.code,
        redirect_uri: exchange.redirectUri,
        code_verifier: exchange.verifier,
      });
      return grantOf(body, what);
    },

    /**
     * The next pair for a refresh token, which stops working by this very call.
     * @throws OAuthError when the service refused; Unanswered when it may have rotated all the same
     */
    async refresh(refreshToken: string): Promise<Grant> {
      const what = 'refresh the access token';
      try {
        const form = { grant_type: 'refresh_token', refresh_token: refreshToken };
        const body = await post('/api/oauth/token', what, form, options.timeoutMs ?? refreshMs);
        return grantOf(body, what);
      } catch (error) {
        // A refusal by 4xx was carried out no further; after all else the token may be spent.
        if (error instanceof OAuthError && error.status >= 400 && error.status < 500) throw error;
        if (neverSent(error)) throw error;
        throw new Unanswered(reasonOf(error), { cause: error });
      }
    },

    /** Ends the connection at the service (spec, section 4.3). */
    async revoke(refreshToken: string): Promise<void> {
      await post('/api/oauth/revoke', 'revoke the refresh token', { token: refreshToken });
    },
  };
}

/** The request certainly did not reach the service. */
function neverSent(error: unknown): boolean {
  const code = (error as { code?: unknown } | undefined)?.code;
  return code === 'ECONNREFUSED' || code === 'ENOTFOUND' || code === 'EAI_AGAIN' || code === 'UND_ERR_CONNECT_TIMEOUT';
}
