import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { cookieAt } from '../public-url.ts';
import { openJson, sealJson } from '../sealed-json.ts';
import type { SignInDeps } from './deps.ts';
import type { SignInLimit } from './limit.ts';
import type { Provider } from './provider.ts';
import { recordRefusal, recordSignIn } from './sign-in-entries.ts';
import { SignInFailed } from './sign-in-failed.ts';

const cookieName = 'asset_mirror_sign_in';
const purpose = 'sign-in attempt';
const attemptMs = 600_000;

/** An attempt to sign in, which the browser keeps in a sealed cookie. */
const attempt = z.object({
  state: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  /** The page after the sign-in. */
  to: z.string(),
  /** Epoch milliseconds. */
  until: z.number(),
});

interface ProviderRoutesDeps extends SignInDeps {
  provider: Provider;
  limit: SignInLimit;
  destination: (to: unknown) => string;
  show: (reply: FastifyReply, status: number, to: string, error?: string) => FastifyReply;
}

/** Sign-in at the OpenID provider: the redirect there, and the callback. */
export function providerRoutes(app: FastifyInstance, deps: ProviderRoutesDeps): void {
  const { provider, sessions, sealer, show } = deps;
  const cookie = cookieAt(deps.publicUrl, '/sign-in');

  function attemptOf(request: FastifyRequest): z.infer<typeof attempt> | undefined {
    const found = openJson(sealer, purpose, attempt, request.cookies[cookieName]);
    return found && found.until > Date.now() ? found : undefined;
  }

  async function failed(error: unknown, request: FastifyRequest, reply: FastifyReply, to: string) {
    if (!(error instanceof SignInFailed)) throw error;
    await recordRefusal(deps, request, error);
    return show(reply, error.status, to, error.message);
  }

  app.get('/sign-in/provider', { schema: { hide: true } }, async (request, reply) => {
    await deps.limit(request);
    const to = deps.destination((request.query as { to?: unknown }).to);
    try {
      const { url, attempt: begun } = await provider.begin();
      const sealed = sealJson(sealer, purpose, { ...begun, to, until: Date.now() + attemptMs });
      reply.setCookie(cookieName, sealed, { ...cookie, maxAge: attemptMs / 1000 });
      return reply.header('cache-control', 'no-store').redirect(url.href, 303);
    } catch (error) {
      return failed(error, request, reply, to);
    }
  });

  app.get('/sign-in/callback', { schema: { hide: true } }, async (request, reply) => {
    await deps.limit(request);
    const begun = attemptOf(request);
    // An answer of the provider is used once. A sign-in that another tab has begun since may still end.
    if (begun?.state === (request.query as { state?: unknown }).state) reply.clearCookie(cookieName, cookie);
    const to = begun?.to ?? deps.destination(undefined);
    if (!begun) {
      return show(reply, 400, to, 'This sign-in has expired or was used before. Sign in again.');
    }
    try {
      const operator = await provider.finish(new URL(request.url, deps.publicUrl).search, begun);
      await recordSignIn(deps, request, operator);
      await sessions.begin(request, reply, operator);
      return reply.header('cache-control', 'no-store').redirect(to, 303);
    } catch (error) {
      return failed(error, request, reply, to);
    }
  });
}
