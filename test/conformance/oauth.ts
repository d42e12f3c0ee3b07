import { createHash, randomBytes } from 'node:crypto';
import { createBrowser } from './browser.ts';
import { Failure, NotTried, shaped } from './check.ts';
import { type Decision, type Person, type Walk, walk, walkByHand } from './consent.ts';
import { type Answer, describeAnswer } from './http.ts';
import type { Client, Service } from './service.ts';
import { TokenResponse, type Tokens } from './shapes.ts';

type Code = { code: string; verifier: string; redirectUri: string; landed: URL };
type Grant = Tokens & { client: Client };

type Asking = {
  query?: Record<string, string | undefined>;
  redirectUri?: string;
  client?: Client;
  person?: Person;
  verifier?: string;
} & Partial<Decision>;

/** How a request to the token endpoint is sent. */
type How = { client?: Client; json?: boolean; inBody?: boolean };

const BY_HAND_TIMEOUT = 10 * 60_000;

export type OAuth = ReturnType<typeof openOAuth>;

/** The consent of a user, and the tokens of connections. */
export function openOAuth(service: Service) {
  const consent = openConsent(service);
  const endpoint = openTokenEndpoint(service);
  return { ...consent, ...endpoint, ...openConnections(service, consent, endpoint) };
}

/** The pages on which a user decides, and the codes that result. */
function openConsent(service: Service) {
  const { options, send, own, person } = service;
  let consents = 0;

  const consent = {
    authorizeUrl(asking: Asking & { challenge: string; state: string }): string {
      const { query = {}, redirectUri = options.redirectUri, client, challenge, state } = asking;
      const parameters = {
        response_type: 'code',
        client_id: client?.clientId ?? service.client().clientId,
        redirect_uri: redirectUri,
        state,
        code_challenge: challenge,
        code_challenge_method: 'S256',
        // Names the user for services that consent automatically.
        login_hint: own && (asking.person ?? person)?.email,
        ...query,
      };
      const given = Object.entries(parameters).filter((pair): pair is [string, string] => pair[1] !== undefined);
      return `${options.app}/oauth/authorize?${new URLSearchParams(given)}`;
    },

    /** Follows the authorize endpoint to the app or to a page. */
    async authorize(asking: Asking = {}): Promise<Walk & { verifier: string; state: string }> {
      const state = asking.query?.state ?? randomBytes(16).toString('base64url');
      const verifier = asking.verifier ?? randomBytes(32).toString('base64url');
      const url = consent.authorizeUrl({ ...asking, challenge: challengeOf(verifier), state });
      const redirectUri = asking.query?.redirect_uri ?? asking.redirectUri ?? options.redirectUri;
      const { decision = 'allow', companies } = asking;
      const wanted: Decision = { decision, ...(companies && { companies }) };
      if (options.byHand) {
        if (++consents > (options.consents ?? Infinity))
          throw new NotTried('takes more consents than --consents allows');
        const does = decision === 'allow' ? `allow access${companies ? ` to ${companies} only` : ''}` : 'cancel';
        const landed = await walkByHand(url, redirectUri, does, BY_HAND_TIMEOUT);
        return { landed, pages: [], verifier, state };
      }
      const who = asking.person ?? person ?? { email: '', password: '', browser: createBrowser(send) };
      const walked = await walk(url, redirectUri, who, wanted);
      return { ...walked, verifier, state };
    },

    /** The pages of the flow. With --by-hand, only the user sees them. */
    async pagesOf(asking: Asking = {}): Promise<Walk['pages']> {
      service.needPages();
      const { pages } = await consent.authorize({ decision: 'cancel', ...asking });
      if (pages.length === 0) throw new NotTried('this service consents automatically and shows no page');
      return pages;
    },

    async newCode(asking: Asking = {}): Promise<Code> {
      if (!options.byHand && !asking.person && !person) {
        throw new NotTried('needs a consent: --user and --password, or --by-hand');
      }
      const { landed, page, verifier } = await consent.authorize(asking);
      if (page && page.status < 400 && !person) throw new NotTried('needs --user and --password');
      const code = landed?.searchParams.get('code');
      if (!code) {
        const found = landed ? `${landed.search}` : `a page (${page!.status}): ${page!.text.slice(0, 200)}`;
        throw new Failure('a redirect to the redirect URI with a code', found);
      }
      return { code, verifier, redirectUri: asking.redirectUri ?? options.redirectUri, landed: landed! };
    },
  };
  return consent;
}

/** The endpoints for tokens. */
function openTokenEndpoint(service: Service) {
  const { options, send } = service;
  const { api } = options;
  const granted = new Map<string, Client>();

  const endpoint = {
    /** A request to the token endpoint, by default as a form with HTTP Basic. */
    async token(fields: Record<string, string>, how: How = {}) {
      const { clientId, clientSecret } = how.client ?? service.client();
      const all = how.inBody ? { ...fields, client_id: clientId, client_secret: clientSecret } : fields;
      const answer = await send(`${api}/api/oauth/token`, {
        method: 'POST',
        headers: {
          ...(how.json && { 'content-type': 'application/json' }),
          ...(!how.inBody && { authorization: basic({ clientId, clientSecret }) }),
        },
        body: how.json ? JSON.stringify(all) : new URLSearchParams(all),
      });
      const token = (answer.json as { refresh_token?: unknown } | undefined)?.refresh_token;
      if (typeof token === 'string') granted.set(token, { clientId, clientSecret });
      return answer;
    },

    exchange: ({ code, verifier, redirectUri }: Omit<Code, 'landed'>, how: How = {}) =>
      endpoint.token(
        { grant_type: 'authorization_code', code, redirect_uri: redirectUri, code_verifier: verifier },
        how,
      ),

    refresh: (token: string, how: How = {}) =>
      endpoint.token({ grant_type: 'refresh_token', refresh_token: token }, how),

    revoke(token: string, client: Client = service.client(), inBody = false): Promise<Answer> {
      const { clientId, clientSecret } = client;
      return send(`${api}/api/oauth/revoke`, {
        method: 'POST',
        headers: inBody ? {} : { authorization: basic(client) },
        body: new URLSearchParams({ token, ...(inBody && { client_id: clientId, client_secret: clientSecret }) }),
      });
    },

    async revokeAll(): Promise<void> {
      for (const [token, client] of granted) await endpoint.revoke(token, client).catch(() => {});
    },
  };
  return endpoint;
}

/** The connections of the user. */
function openConnections(
  service: Service,
  consent: ReturnType<typeof openConsent>,
  endpoint: ReturnType<typeof openTokenEndpoint>,
) {
  let kept: { grant: Grant; since: number; moves: number } | undefined;

  const connections = {
    /** A separate connection, for a check that ends it. */
    async grant(asking: Asking = {}): Promise<Grant> {
      const client = asking.client ?? service.client();
      const answer = await endpoint.exchange(await consent.newCode(asking), { client });
      if (answer.status !== 200) throw new Failure('tokens for a code', describeAnswer(answer));
      return { ...shaped('the token response', TokenResponse, answer.json), client };
    },

    /** The connection that all reading checks share. It is refreshed before it expires. */
    async session(): Promise<Grant> {
      const isStale = kept && (kept.moves !== service.moves() || Date.now() - kept.since > 50 * 60_000);
      if (kept && isStale) {
        const answer = await endpoint.refresh(kept.grant.refresh_token);
        const tokens = TokenResponse.safeParse(answer.json);
        kept = tokens.success
          ? { grant: { ...tokens.data, client: kept.grant.client }, since: Date.now(), moves: service.moves() }
          : undefined;
      }
      kept ??= { grant: await connections.grant(), since: Date.now(), moves: service.moves() };
      return kept.grant;
    },

    /** Called when a check has ended the shared connection. */
    forget(): void {
      kept = undefined;
    },
  };
  return connections;
}

export function challengeOf(verifier: string): string {
  return createHash('sha256').update(verifier).digest('base64url');
}

export function basic({ clientId, clientSecret }: Client): string {
  return `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}`;
}
