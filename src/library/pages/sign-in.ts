import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Service } from '../service.ts';
import { Attempts } from './attempts.ts';
import { sendPage } from './layout.ts';
import { signInPage } from './pages.ts';
import type { Sessions } from './sessions.ts';

type Fields = { next?: unknown; email?: unknown; password?: unknown };

export function registerSignIn(server: FastifyInstance, service: Service, sessions: Sessions): void {
  const attempts = new Attempts(service.clock);

  function sendForm(
    request: FastifyRequest,
    reply: FastifyReply,
    { next, email }: Fields,
    status: number,
    problem?: string,
  ): FastifyReply {
    const path = ownPath(next);
    const clientId = new URLSearchParams(path.split('?')[1]).get('client_id');
    const form = {
      csrf: sessions.csrf(request, reply),
      next: path,
      app: clientId === null ? undefined : service.accounts.registration(clientId)?.name,
      email: typeof email === 'string' ? email : undefined,
      problem,
    };
    return sendPage(reply, { ...signInPage(form), status });
  }

  server.get('/sign-in', async (request, reply) => {
    const fields = request.query as Fields;
    if (sessions.user(request)) return reply.redirect(service.addresses.app + ownPath(fields.next), 303);
    return sendForm(request, reply, fields, 200);
  });

  server.post('/sign-in', async (request, reply) => {
    sessions.checkCsrf(request);
    const fields = request.body as Fields;
    const { next, email, password } = fields;
    const refuse = (status: number, problem: string) => sendForm(request, reply, fields, status, problem);
    if (typeof email !== 'string' || typeof password !== 'string') {
      return refuse(400, 'Enter your email address and password.');
    }
    const wait = attempts.begin(email, request.ip);
    if (wait > 0) {
      reply.header('retry-after', wait);
      return refuse(429, 'Too many attempts. Wait a few minutes and try again.');
    }
    const user = await service.accounts.userByPassword(email, password);
    if (!user) return refuse(403, 'That email address and password do not match.');
    attempts.succeeded(email, request.ip);
    await sessions.signIn(reply, user.id);
    return reply.redirect(service.addresses.app + ownPath(next), 303);
  });

  server.post('/sign-out', async (request, reply) => {
    sessions.checkCsrf(request);
    await sessions.signOut(request, reply);
    return reply.redirect(`${service.addresses.app}/sign-in`, 303);
  });
}

/** A path of this server, so that nobody is redirected elsewhere. To a browser, `//host` and `/\host` are other sites. */
function ownPath(next: unknown): string {
  return typeof next === 'string' && /^\/(?![/\\])[^\x00-\x1f\\]*$/.test(next) ? next : '/profile';
}
