import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { same } from '../secrets.ts';
import { asRefusal } from '../server.ts';
import { Refusal, type Service } from '../service.ts';
import type { Tokens } from './connections.ts';

const Credentials = z.object({ client_id: z.string().optional(), client_secret: z.string().optional() });

/** Section 4.2. */
const TokenRequest = z.discriminatedUnion('grant_type', [
  z.object({
    grant_type: z.literal('authorization_code'),
    code: z.string(),
    redirect_uri: z.string(),
    code_verifier: z.string().regex(/^[A-Za-z0-9\-._~]{43,128}$/, 'is 43 to 128 URL-safe characters'),
  }),
  z.object({ grant_type: z.literal('refresh_token'), refresh_token: z.string() }),
]);

type Grant<Type> = Extract<z.infer<typeof TokenRequest>, { grant_type: Type }>;

/** Sections 4.2 and 4.3, with the errors of RFC 6749. */
export function registerOAuth(server: FastifyInstance, service: Service): void {
  server.register(async (scope) => {
    scope.addHook('onRequest', async (_request, reply) => {
      reply.headers({ 'cache-control': 'no-store', pragma: 'no-cache' });
    });

    scope.setErrorHandler((error, _request, reply) => {
      const refusal = asRefusal(error);
      // RFC 6749, 5.2 knows 400 and 401; whatever else is wrong with a request is a bad request.
      const status = refusal.status < 500 && refusal.status !== 401 ? 400 : refusal.status;
      if (status >= 500) service.log({ error: String(error) });
      reply.code(status).headers(refusal.headers).send({ error: refusal.code, error_description: refusal.message });
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
        expires_in: issued.expiresIn,
        refresh_token: issued.refreshToken,
        scope: 'assets:read',
      };
    });
  });

  server.register(async (scope) => {
    // Section 4.3: the answer is always 200 with an empty object. What cannot be read or proved ends nothing.
    scope.setErrorHandler((error, _request, reply) => {
      const status = asRefusal(error).status < 500 ? 200 : 500;
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
    !same(code.redirectUri, grant.redirect_uri) ||
    !same(code.challenge, challenge)
  ) {
    throw invalidGrant('The code is unknown, expired, or was issued for another app, address or verifier.');
  }
  if (!service.accounts.user(code.userId)) throw invalidGrant('The user who gave this code is gone.');
  const tokens = await service.connections.exchange(grant.code, service.settings.tokenLifetime);
  if (!tokens) throw invalidGrant('The code was used before.');
  return tokens;
}

async function refresh(service: Service, clientId: string, grant: Grant<'refresh_token'>): Promise<Tokens> {
  const connection = service.connections.ofRefreshToken(grant.refresh_token);
  const isOwn = connection?.clientId === clientId;
  const tokens = isOwn && (await service.connections.rotate(grant.refresh_token, service.settings.tokenLifetime));
  if (!tokens) throw invalidGrant('The refresh token is unknown, was used before, or its connection has ended.');
  return tokens;
}

/** HTTP Basic, or client_id and client_secret in the body (section 5). */
function authenticateClient(service: Service, request: FastifyRequest): string {
  const basic = readBasic(request.headers.authorization);
  const body = Credentials.safeParse(request.body ?? {}).data ?? {};
  const isOther = body.client_id !== undefined && basic?.every(({ id }) => id !== body.client_id);
  if (basic && (body.client_secret !== undefined || isOther)) {
    throw new Refusal(400, 'invalid_request', 'Send the client credentials in one place only.');
  }
  for (const { id, secret } of basic ?? [{ id: body.client_id, secret: body.client_secret }]) {
    if (id && secret && service.accounts.isClientSecret(id, secret)) return id;
  }
  throw new Refusal(401, 'invalid_client', 'The client_id or client_secret is wrong or missing.', {
    'www-authenticate': 'Basic realm="oauth"',
  });
}

/**
 * Base64 of `client_id:client_secret`, as section 4.2 has it. Careful clients form-encode both halves first (RFC 6749,
 * 2.3.1), which is another reading of the same header.
 */
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
    throw new Refusal(400, 'unsupported_grant_type', `There is no grant_type ${type}.`);
  }
  throw new Refusal(400, 'invalid_request', `${path.join('.')}: ${message}`);
}

function invalidGrant(message: string): Refusal {
  return new Refusal(400, 'invalid_grant', message);
}
