import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { HttpError } from '../http-error.ts';
import type { Company, Registration, User } from '../model.ts';
import { sendPage } from '../pages/layout.ts';
import { consentPage } from '../pages/pages.ts';
import type { Sessions } from '../pages/sessions.ts';
import type { Service } from '../service.ts';

/** Section 2.2. */
const CODE_LIFETIME = 10 * 60 * 1000;

type Authorization = { registration: Registration; redirectUri: string; state: string; challenge: string };

const Query = z.object({ client_id: z.string(), redirect_uri: z.string(), state: z.string().min(1).optional() });

/** Section 4.1: the page to which an app sends its users. */
export function registerAuthorize(server: FastifyInstance, service: Service, sessions: Sessions): void {
  const path = '/oauth/authorize';
  const config = { endpoint: 'authorize' } as const;

  server.get(path, { config }, async (request, reply) => {
    const authorization = await readAuthorization(service, request, reply);
    if (!authorization) return reply;

    const hint = (request.query as { login_hint?: unknown }).login_hint;
    if (service.settings.autoConsent) {
      return approve(service, reply, authorization, userByHint(service, hint), null);
    }
    const user = sessions.user(request);
    if (!user) return reply.redirect(signInUrl(request, hint), 303);
    return sendConsent(request, reply, authorization, user);
  });

  server.post(path, { config }, async (request, reply) => {
    const authorization = await readAuthorization(service, request, reply);
    if (!authorization) return reply;
    sessions.checkCsrf(request);
    const user = sessions.user(request);
    if (!user) return reply.redirect(signInUrl(request), 303);
    const { decision, company } = request.body as { decision?: unknown; company?: string | string[] };
    if (decision !== 'allow') return redirect(reply, authorization, { error: 'access_denied' });

    const picked = service.accounts.companiesOf(user.id).filter(({ id }) => [company].flat().includes(id));
    if (picked.length === 0) {
      return sendConsent(request, reply, authorization, user, 'Choose at least one company, or cancel.');
    }
    return approve(service, reply, authorization, user, picked);
  });

  function signInUrl(request: FastifyRequest, hint?: unknown): string {
    const query = new URLSearchParams({ next: request.url, ...(typeof hint === 'string' && { email: hint }) });
    return `${service.addresses.app}/sign-in?${query}`;
  }

  async function sendConsent(
    request: FastifyRequest,
    reply: FastifyReply,
    { registration, redirectUri }: Authorization,
    user: User,
    problem?: string,
  ): Promise<FastifyReply> {
    const companies = service.accounts.companiesOf(user.id);
    const csrf = sessions.csrf(request, reply);
    return sendPage(
      reply,
      consentPage({ registration, user, companies, redirectUri, action: request.url, csrf, problem }),
    );
  }
}

/**
 * The checked request, or undefined if the app was redirected with an error. An unknown app or redirect URI is shown to
 * the user instead: nothing is ever sent to an address that is not registered.
 */
async function readAuthorization(
  service: Service,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<Authorization | undefined> {
  const parsed = Query.safeParse(request.query);
  const registration = parsed.success ? service.accounts.registration(parsed.data.client_id) : undefined;
  if (!parsed.success || !registration) {
    throw new HttpError(400, 'unknown_app', 'The link that you followed is for an app that does not exist.');
  }
  const { redirect_uri: redirectUri, state } = parsed.data;
  if (!registration.redirectUris.includes(redirectUri)) {
    throw new HttpError(
      400,
      'wrong_redirect_uri',
      `The link that you followed returns to an address that is not registered for ${registration.name}.`,
    );
  }
  const query = request.query as Record<string, unknown>;
  const problem = problemOf(query, state);
  if (problem) {
    redirect(reply, { redirectUri, state }, problem);
    return undefined;
  }
  return { registration, redirectUri, state: state!, challenge: query.code_challenge as string };
}

function problemOf(
  query: Record<string, unknown>,
  state: string | undefined,
): { error: string; error_description: string } | undefined {
  const invalid = (error_description: string) => ({ error: 'invalid_request', error_description });
  if (typeof query.response_type !== 'string') return invalid('response_type is missing');
  if (query.response_type !== 'code') {
    return { error: 'unsupported_response_type', error_description: 'response_type must be code' };
  }
  if (state === undefined) return invalid('state is missing');
  if (query.code_challenge_method !== 'S256') return invalid('code_challenge_method must be S256');
  if (typeof query.code_challenge !== 'string' || !/^[\w-]{43}$/.test(query.code_challenge)) {
    return invalid('code_challenge must be BASE64URL(SHA256(code_verifier))');
  }
  return undefined;
}

async function approve(
  service: Service,
  reply: FastifyReply,
  { registration, redirectUri, state, challenge }: Authorization,
  user: User,
  companies: Company[] | null,
): Promise<FastifyReply> {
  const code = await service.connections.issueCode({
    clientId: registration.clientId,
    userId: user.id,
    redirectUri,
    challenge,
    companies: companies?.map(({ id }) => id) ?? null,
    expiresAt: service.clock.now() + CODE_LIFETIME,
  });
  return redirect(reply, { redirectUri, state }, { code });
}

/** Appends the answer to the registered address, which stays as it is, letter by letter. */
function redirect(
  reply: FastifyReply,
  { redirectUri, state }: { redirectUri: string; state: string | undefined },
  answer: Record<string, string>,
): FastifyReply {
  const query = new URLSearchParams({ ...answer, ...(state !== undefined && { state }) });
  const separator = redirectUri.includes('?') ? '&' : '?';
  return reply
    .headers({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' })
    .redirect(`${redirectUri}${separator}${query}`, 302);
}

function userByHint(service: Service, hint: unknown): User {
  const users = service.accounts.users();
  const user = hint === undefined ? users[0] : users.find(({ id, email }) => id === hint || email === hint);
  if (!user) throw new HttpError(400, 'unknown_user', 'The link that you followed is for a user who does not exist.');
  return user;
}
