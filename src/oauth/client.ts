import { type Dispatcher, request } from 'undici';
import { z } from 'zod';
import { NamedError, namingSetting, reasonOf, retryAfter } from '../floor/errors.ts';
import { neverSent } from '../floor/network-problem.ts';

/** The answer of the token endpoint (spec, section 2.3). `refreshToken` is undefined when the library kept the one it has. */
export interface IssuedTokens {
  accessToken: string;
  refreshToken: string | undefined;
  /** The app registration that they were issued to. */
  clientId: string;
  /** How long the access token is used, in ms: its life less a minute, or less a fifth of a short life. */
  accessMs: number;
}

/** The library refused: HTTP status and the error code of its answer (RFC 6749, section 5.2). */
export class OAuthError extends NamedError {
  readonly status: number;
  readonly code: string | undefined;
  /** How long the library asked to wait, in ms. */
  readonly waitMs: number | undefined;

  constructor(what: string, status: number, code: string | undefined, waitMs?: number) {
    super(`${what}: the library answered ${status}${code ? ` ${code}` : ''}`);
    this.status = status;
    this.code = code;
    this.waitMs = waitMs;
  }

  /** The only answer that ends a connection (spec, section 7): 400 with `invalid_grant`. */
  get invalidGrant(): boolean {
    return this.status === 400 && this.code === 'invalid_grant';
  }
}

/** A refresh got no usable answer: it is unknown whether the library has rotated the token. */
export class Unanswered extends NamedError {}

/** Lenient: the old token is spent already, so only an answer without an access token is refused. */
const tokenAnswer = z.object({
  access_token: z.string().min(1),
  expires_in: z.coerce.number().positive().catch(3600),
  refresh_token: z.string().min(1).optional().catch(undefined),
});

/** Seconds. A token with a longer life is refreshed after this time, too. */
const longestLife = 24 * 3600;

/** Longer than for other calls: the answer to a refresh is the only copy of the next token. */
const refreshMs = 60_000;

export interface OAuthClientOptions {
  apiUrl: string;
  clientId: string;
  clientSecret: string;
  dispatcher?: Dispatcher;
  timeoutMs?: number;
}

/** The token and revoke endpoints (spec, sections 4.2 and 4.3). */
export class OAuthClient {
  readonly #options: OAuthClientOptions;
  /** Credentials in the header, or in the body. */
  readonly #header: { authorization?: string };
  readonly #body: { client_id?: string; client_secret?: string };

  get clientId(): string {
    return this.#options.clientId;
  }

  constructor(options: OAuthClientOptions) {
    const { clientId, clientSecret } = options;
    this.#options = options;
    // RFC 6749, section 2.3.1 form-encodes id and secret before they are joined; the spec does not say so. If that makes
    // a difference, the credentials go into the body, which is unambiguous.
    const plain = [clientId, clientSecret].every((part) => encodeURIComponent(part) === part);
    const basic = Buffer.from(`${clientId}:${clientSecret}`).toString('base64');
    this.#header = plain ? { authorization: `Basic ${basic}` } : {};
    this.#body = plain ? {} : { client_id: clientId, client_secret: clientSecret };
  }

  /** @throws OAuthError */
  async exchangeCode(exchange: { code: string; redirectUri: string; verifier: string }): Promise<IssuedTokens> {
    const what = 'exchange the authorization code';
    const body = await this.#post('/api/oauth/token', what, {
      grant_type: 'authorization_code',
      code: exchange.code,
      redirect_uri: exchange.redirectUri,
      code_verifier: exchange.verifier,
    });
    return issuedTokens(body, what, this.clientId);
  }

  /**
   * The next pair for a refresh token, which this call makes invalid.
   * @throws OAuthError when the library refused; Unanswered when it may have rotated the token
   */
  async refresh(refreshToken: string): Promise<IssuedTokens> {
    const what = 'refresh the access token';
    const form = { grant_type: 'refresh_token', refresh_token: refreshToken };
    try {
      return issuedTokens(await this.#post('/api/oauth/token', what, form, refreshMs), what, this.clientId);
    } catch (error) {
      // With a 4xx the library did not rotate; after any other answer the token may be spent.
      if (error instanceof OAuthError && error.status >= 400 && error.status < 500) throw error;
      if (neverSent(error)) throw error;
      throw new Unanswered(reasonOf(error), { cause: error });
    }
  }

  /** Ends the connection at the library (spec, section 4.3). */
  async revoke(refreshToken: string): Promise<void> {
    await this.#post('/api/oauth/revoke', 'revoke the refresh token', { token: refreshToken });
  }

  async #post(path: string, what: string, form: Record<string, string>, patienceMs = 20_000): Promise<unknown> {
    const { apiUrl, dispatcher, timeoutMs = patienceMs } = this.#options;
    const response = await request(`${apiUrl}${path}`, {
      method: 'POST',
      headers: {
        ...this.#header,
        'content-type': 'application/x-www-form-urlencoded',
        accept: 'application/json',
        'accept-encoding': 'identity',
      },
      body: new URLSearchParams({ ...form, ...this.#body }).toString(),
      signal: AbortSignal.timeout(timeoutMs),
      headersTimeout: timeoutMs,
      ...(dispatcher && { dispatcher }),
    }).catch((error) => {
      throw namingSetting(error, 'LIBRARY_API_URL');
    });
    const body = parsed(await response.body.text());
    const { statusCode, headers } = response;
    if (statusCode >= 200 && statusCode <= 299) return body;
    const code = z.object({ error: z.string().regex(/^[\w-]{1,64}$/) }).safeParse(body).data?.error;
    throw new OAuthError(what, statusCode, code, retryAfter(headers['retry-after'], headers.date)?.waitMs);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function issuedTokens(body: unknown, what: string, clientId: string): IssuedTokens {
  const answer = tokenAnswer.safeParse(body);
  if (!answer.success) {
    const field = answer.error.issues[0]?.path.join('.') || 'body';
    throw new Error(`${what}: the library's answer is not a token response (${field})`);
  }
  const life = Math.min(answer.data.expires_in, longestLife) * 1000;
  return {
    accessToken: answer.data.access_token,
    refreshToken: answer.data.refresh_token,
    clientId,
    accessMs: life - Math.min(60_000, life / 5),
  };
}
