import formbody from '@fastify/formbody';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import type { Log } from '../../log.ts';
import type { Operations } from '../../operations/operations.ts';
import { formPageHeaders, signInPage } from '../pages.ts';
import { type AccessDeps, fromOurPages } from './access.ts';

const form = z.object({ token: z.string().max(1000).default(''), to: z.string().max(2000).optional() });

/** Sign-in with the operators' token, by a form, for browsers. */
export async function signInRoutes(
  app: FastifyInstance,
  deps: AccessDeps & { operations: Operations; log: Log },
): Promise<void> {
  const { sessions, operations, log } = deps;
  const base = new URL(deps.publicUrl).pathname.replace(/\/+$/, '');
  await app.register(formbody);

  /** The page after the sign-in; never on another site. */
  const destination = (to: unknown): string => {
    const home = `${base}/`;
    if (typeof to !== 'string' || !to.startsWith('/')) return home;
    const url = URL.parse(to, deps.publicUrl);
    return url?.origin === new URL(deps.publicUrl).origin &&
      url.pathname.startsWith(home) &&
      !url.pathname.startsWith('//')
      ? url.pathname + url.search
      : home;
  };
  const show = (reply: FastifyReply, status: number, to: string, error?: string) =>
    reply
      .code(status)
      .headers(formPageHeaders)
      .send(signInPage({ action: `${base}/sign-in`, to, error }));

  app.get('/sign-in', { schema: { hide: true } }, async (request, reply) => {
    const to = destination((request.query as { to?: unknown }).to);
    if (await sessions.holds(request)) return reply.redirect(to, 303);
    return show(reply, 200, to);
  });

  app.post('/sign-in', { schema: { hide: true } }, async (request, reply) => {
    const { token, to: wanted } = form.catch({ token: '' }).parse(request.body ?? {});
    const to = destination(wanted);
    if (!fromOurPages(request, deps.publicUrl)) {
      return show(reply, 403, to, 'The form was sent from another site. Sign in here.');
    }
    const verdict = await deps.checkToken(token.trim(), request.ip);
    if (verdict !== 'right') log.warn({ event: 'sign_in.refused', address: request.ip }, 'sign-in refused');
    if (verdict === 'wrong')
      return show(
        reply,
        401,
        to,
        'This token is wrong. It is ADMIN_TOKEN, or the one that was printed at the first start.',
      );
    if (verdict !== 'right') {
      reply.header('retry-after', verdict.wait);
      return show(reply, 429, to, `Too many wrong tokens. Try again in ${verdict.wait} seconds.`);
    }
    await operations.audit({ action: 'signIn', by: 'session', status: 303, requestId: request.id });
    sessions.begin(reply);
    return reply.header('cache-control', 'no-store').redirect(to, 303);
  });

  app.post('/sign-out', { schema: { hide: true } }, async (request, reply) => {
    if ((await sessions.holds(request)) && fromOurPages(request, deps.publicUrl)) {
      await sessions.end(request, reply);
      await operations.audit({ action: 'signOut', by: 'session', status: 303, requestId: request.id });
    }
    return reply.header('cache-control', 'no-store').redirect(`${base}/sign-in`, 303);
  });
}
