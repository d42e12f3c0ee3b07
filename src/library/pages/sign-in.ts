import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Registration } from '../model.ts';
import type { Service } from '../service.ts';
import { createAttempts } from './attempts.ts';
import { sendPage } from './layout.ts';
import { signInPage } from './pages.ts';
import type { Sessions } from './sessions.ts';

type Fields = { next?: unknown; email?: unknown; password?: unknown };

export function registerSignIn(server: FastifyInstance, service: Service, sessions: Sessions): void {
  const attempts = createAttempts(service.clock);

  server.get('/sign-in', async (request, reply) => {
    const { next, email } = request.query as Fields;
    if (sessions.user(request)) return reply.redirect(service.addresses.app + ownPath(next), 303);
    return sendForm(request, reply, { next, email });
  });

  server.post('/sign-in', async (request, reply) => {
    sessions.checkCsrf(request);
    const { next, email, password } = request.body as Fields;
    if (typeof email !== 'string' || typeof password !== 'string') {
      return sendForm(request, reply.code(400), { next, email }, 'Enter your email address and password.');
    }
    const wait = attempts.begin(email, request.ip);
    if (wait > 0) {
      reply.header('retry-after', wait);
      return sendForm(
        request,
        reply,
        { next, email },
        'Too many attempts. Please wait a few minutes and try again.',
        429,
      );
    }
    const user = await service.accounts.userByPassword(email, password);
    if (!user) {
      return sendForm(request, reply, { next, email }, 'That email address and password do not match.', 403);
    }
    attempts.succeeded(email, request.ip);
    await sessions.signIn(reply, user.id);
    return reply.redirect(service.addresses.app + ownPath(next), 303);
  });

  server.post('/sign-out', async (request, reply) => {
    sessions.checkCsrf(request);
    await sessions.signOut(request, reply);
    return reply.redirect(`${service.addresses.app}/sign-in`, 303);
  });

  async function sendForm(
    request: FastifyRequest,
    reply: FastifyReply,
    { next, email }: Fields,
    problem?: string,
    status = 200,
  ): Promise<FastifyReply> {
    const app = appOf(next);
    const form = {
      csrf: sessions.csrf(sessions.begin(request, reply)),
      next: ownPath(next),
      ...(app && { app: app.name }),
      ...(typeof email === 'string' && { email }),
      ...(problem !== undefined && { problem }),
    };
    return sendPage(reply, { ...signInPage(form), status });
  }

  /** The app whose consent page comes after. */
  function appOf(next: unknown): Registration | undefined {
    const clientId = new URLSearchParams(ownPath(next).split('?')[1]).get('client_id');
    return clientId === null ? undefined : service.accounts.registration(clientId);
  }
}

/** A path of this server, never an address elsewhere: `//host` and `/\host` are addresses to a browser. */
function ownPath(next: unknown): string {
  return typeof next === 'string' && /^\/(?![/\\])[^\x00-\x1f\\]*$/.test(next) ? next : '/profile';
}
