import formbody from '@fastify/formbody';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { Refused } from '../../operations/refused.ts';
import { formPageHeaders } from '../pages.ts';
import { basePath } from '../public-url.ts';
import { fromOurPages } from './access.ts';
import type { SignInDeps } from './deps.ts';
import { deviceRoutes } from './device-routes.ts';
import { createSignInLimit } from './limit.ts';
import { signInPage, signOutPage } from './pages.ts';
import { providerRoutes } from './provider-routes.ts';
import { recordRefusal, recordSignIn, requestOf } from './sign-in-entries.ts';

const noProvider =
  'This asset-mirror has no OpenID provider, so nobody can sign in on a terminal. Set ASSET_MIRROR_TOKEN to an API token, or ADMIN_TOKEN.';

const form = z.object({ token: z.string().max(1000).default(''), to: z.string().max(2000).optional() });

/** Sign-in and sign-out for browsers: at the OpenID provider, or with ADMIN_TOKEN by a form. */
export async function signInRoutes(app: FastifyInstance, deps: SignInDeps): Promise<void> {
  const { sessions, operations, log, provider, signIn } = deps;
  const base = basePath(deps.publicUrl);
  const destination = destinations(deps.publicUrl);
  await app.register(formbody);

  const show = (reply: FastifyReply, status: number, to: string, error?: string) =>
    reply
      .code(status)
      .headers(formPageHeaders)
      .send(signInPage({ base, to, error, provider: provider?.name, withToken: signIn.token }));

  app.get('/sign-in', { schema: { hide: true } }, async (request, reply) => {
    const to = destination((request.query as { to?: unknown }).to);
    if (await sessions.of(request)) return reply.header('cache-control', 'no-store').redirect(to, 303);
    return show(reply, 200, to);
  });

  if (provider) {
    const limit = createSignInLimit();
    providerRoutes(app, { ...deps, provider, limit, destination, show });
    deviceRoutes(app, { ...deps, provider, limit });
  } else {
    app.post('/sign-in/device', { schema: { hide: true } }, () => {
      throw new Refused(404, 'no_provider', noProvider);
    });
  }

  app.post('/sign-in', { schema: { hide: true } }, async (request, reply) => {
    const { token, to: wanted } = form.catch({ token: '' }).parse(request.body ?? {});
    const to = destination(wanted);
    if (!fromOurPages(request, deps.publicUrl)) {
      return show(reply, 403, to, 'The form was sent from another site. Sign in here.');
    }
    if (!signIn.token)
      return show(
        reply,
        403,
        to,
        'Sign-in with a token is switched off (TOKEN_SIGN_IN=false). Sign in with the OpenID provider.',
      );
    const verdict = await deps.checkToken(token.trim(), request.ip);
    if (verdict !== 'wrong' && !('wait' in verdict)) {
      await recordSignIn(deps, request, verdict);
      await sessions.begin(request, reply, verdict);
      return reply.header('cache-control', 'no-store').redirect(to, 303);
    }
    if (verdict === 'wrong') {
      const message = 'This token is wrong.';
      await recordRefusal(deps, request, { status: 401, code: 'wrong_token', message });
      return show(reply, 401, to, message);
    }
    log.warn({ event: 'sign_in.refused', address: request.ip, code: 'too_many_wrong_tokens' }, 'sign-in refused');
    reply.header('retry-after', verdict.wait);
    return show(reply, 429, to, `Too many wrong tokens. Try again in ${verdict.wait} seconds.`);
  });

  app.post('/sign-out', { schema: { hide: true } }, async (request, reply) => {
    reply.header('cache-control', 'no-store');
    const session = fromOurPages(request, deps.publicUrl) ? await sessions.of(request) : undefined;
    if (!session) return reply.redirect(`${base}/sign-in`, 303);
    await sessions.end(session, reply);
    await operations.audit({ action: 'signOut', ...requestOf(request), operator: session, status: 303 });
    const away = session.method === 'oidc' ? await signOutUrl() : undefined;
    if (!away) return reply.redirect(`${base}/sign-in`, 303);
    // Not a redirect: the CSP form-action of our page would block one to another site.
    return reply.headers(formPageHeaders).send(signOutPage(away.href, away.host));
  });

  /** The address where to sign out at the provider. Undefined: the provider has none, or does not answer. */
  async function signOutUrl(): Promise<URL | undefined> {
    try {
      return await provider?.signOutUrl();
    } catch (err) {
      log.warn({ event: 'sign_out.provider_failed', err }, 'not signed out at the provider');
      return undefined;
    }
  }
}

/** The path is kept in a cookie during the sign-in. */
const longestPath = 1000;

/** Returns a function that turns a requested path into the page after the sign-in: never one on another site. */
function destinations(publicUrl: string) {
  const { origin } = new URL(publicUrl);
  const home = `${basePath(publicUrl)}/`;
  return (to: unknown): string => {
    if (typeof to !== 'string' || !to.startsWith('/') || to.length > longestPath) return home;
    const url = URL.parse(to, publicUrl);
    return url?.origin === origin && url.pathname.startsWith(home) && !url.pathname.startsWith('//')
      ? url.pathname + url.search + url.hash
      : home;
  };
}
