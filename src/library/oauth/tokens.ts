import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { HttpError, logLineOf, toHttpError } from '../http-error.ts';
import { safeEqual } from '../secrets.ts';
import type { Service } from '../service.ts';
import { TOKEN_LIFETIME, type Tokens } from './connections.ts';

const Credentials = z.object({ client_id: z.string().optional(), client_secret: z.string().optional() });

/** Section 4.2. */
const TokenRequest = z.discriminatedUnion('grant_type', [
  z.object({
    grant_type: z.literal('authorization_code'),
    code: z.string(),
    redirect_uri: z.string(),
    code_verifier: z.string().regex(/^[A-Za-z0-9\-._~]{43,128}$/, 'must be 43 to 128 URL-safe characters'),
  }),
  z.object({ grant_type: z.literal('refresh_token'), refresh_token: z.string() }),
]);

type Grant<Type> = Extract<z.infer<typeof TokenRequest>, { grant_type: Type }>;

/** Sections 4.2 and 4.3, with the errors of RFC 6749. */
export function registerTokens(server: FastifyInstance, service: Service): void {
  server.register(async (scope) => {
    scope.addHook('onRequest', async (_request, reply) => {
      reply.headers({ 'cache-control': 'no-store', pragma: 'no-cache' });
    });

    scope.setErrorHandler((error, _request, reply) => {
      const failure = toHttpError(error);
      // RFC 6749, 5.2: client errors are 400 or 401.
      const status = failure.status < 500 && failure.status !== 401 ? 400 : failure.status;
      if (status >= 500) service.log(logLineOf(error));
      reply.code(status).headers(failure.headers).send({ error: failure.code, error_description: failure.message });
    });

    scope.post('/api/oauth/token', { config: { endpoint: 'token' } }, async (request) => {
      const clientId = authenticateClient(service, request);
      const grant = readGrant(request.body);
      const issued =
        grant.grant_type === 'authorization_code'
          ? await exchangeCode(service, clientId, grant)
          : await refresh(service, clientId, grant);
      return {
        access_token: issued.accessToken,
        token_type: 'Bearer',
        expires_in: TOKEN_LIFETIME,
        refresh_token: issued.refreshToken,
        scope: 'assets:read',
      };
    });
  });

  server.register(async (scope) => {
    // Section 4.3: the answer is always 200 with an empty object, even if the request is not valid.
    scope.setErrorHandler((error, _request, reply) => {
      const status = toHttpError(error).status < 500 ? 200 : 500;
      reply.code(status).send({});
    });

    scope.post('/api/oauth/revoke', { config: { endpoint: 'revoke' } }, async (request) => {
      const clientId = authenticateClient(service, request);
      const parsed = z.object({ token: z.string() }).safeParse(request.body);
      if (parsed.success) await service.connections.revoke(parsed.data.token, clientId);
      return {};
    });
  });
}

async function exchangeCode(service: Service, clientId: string, grant: Grant<'authorization_code'>): Promise<Tokens> {
  const code = service.connections.code(grant.code);
  const challenge = createHash('sha256').update(grant.code_verifier).digest('base64url');
  if (
    !code ||
    code.clientId !== clientId ||
    !safeEqual(code.redirectUri, grant.redirect_uri) ||
    !safeEqual(code.challenge, challenge)
  ) {
    throw invalidGrant('The code is unknown, has expired, or was issued for another app, redirect URI or verifier.');
  }
  if (!service.accounts.user(code.userId)) throw invalidGrant('The user who gave this code was removed.');
  const tokens = await service.connections.exchange(grant.code);
  if (!tokens) throw invalidGrant('The code was already used.');
  return tokens;
}

async function refresh(service: Service, clientId: string, grant: Grant<'refresh_token'>): Promise<Tokens> {
  const connection = service.connections.ofRefreshToken(grant.refresh_token);
  const isOwn = connection?.clientId === clientId;
  const tokens = isOwn && (await service.connections.rotate(grant.refresh_token));
  if (!tokens) throw invalidGrant('The refresh token is unknown or was already used, or its connection has ended.');
  return tokens;
}

/** HTTP Basic, or client_id and client_secret in the body (section 5). */
function authenticateClient(service: Service, request: FastifyRequest): string {
  const basic = readBasic(request.headers.authorization);
  const body = Credentials.safeParse(request.body ?? {}).data ?? {};
  const isOther = body.client_id !== undefined && basic?.every(({ id }) => id !== body.client_id);
  if (basic && (body.client_secret !== undefined || isOther)) {
    throw new HttpError(400, 'invalid_request', 'Send the client credentials in one place only.');
  }
  for (const { id, secret } of basic ?? [{ id: body.client_id, secret: body.client_secret }]) {
    if (id && secret && service.accounts.isClientSecret(id, secret)) return id;
  }
  throw new HttpError(401, 'invalid_client', 'The client_id or client_secret is wrong or missing.', {
    'www-authenticate': 'Basic realm="oauth"',
  });
}

/** Both readings of the header: as in section 4.2, and with both halves form-encoded, as in RFC 6749, 2.3.1. */
function readBasic(header: string | undefined): { id: string; secret: string }[] | undefined {
  const encoded = /^Basic +([A-Za-z0-9+/=_-]+)$/i.exec(header ?? '')?.[1];
  if (!encoded) return undefined;
  const [id = '', ...rest] = Buffer.from(encoded, 'base64').toString().split(':');
  const secret = rest.join(':');
  return [
    { id, secret },
    { id: formDecoded(id), secret: formDecoded(secret) },
  ];
}

function formDecoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return text;
  }
}

function readGrant(body: unknown): z.infer<typeof TokenRequest> {
  const parsed = TokenRequest.safeParse(body);
  if (parsed.success) return parsed.data;
  const { path, message } = parsed.error.issues[0]!;
  const type = (body as { grant_type?: unknown } | null | undefined)?.grant_type;
  if (path[0] === 'grant_type' && typeof type === 'string') {
    throw new HttpError(400, 'unsupported_grant_type', `The grant_type ${type} is not supported.`);
  }
  throw new HttpError(400, 'invalid_request', `${path.join('.')}: ${message}`);
}

function invalidGrant(message: string): HttpError {
  return new HttpError(400, 'invalid_grant', message);
}
