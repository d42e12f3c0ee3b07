import type { FastifyReply, FastifyRequest } from 'fastify';
import type { User } from '../model.ts';
import { digest, mac, newSecret, same } from '../secrets.ts';
import { Refusal, type Service } from '../service.ts';

const LIFETIME = 12 * 3600 * 1000;

/** Who a browser is. Every browser has a cookie, so that also the sign-in form is bound to the browser it was sent to. */
export type Sessions = {
  begin(request: FastifyRequest, reply: FastifyReply): string;
  user(request: FastifyRequest): User | undefined;
  /** Under a new cookie: one that was planted before does not become a signed-in one. */
  signIn(reply: FastifyReply, userId: string): Promise<void>;
  signOut(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** The token that proves that a form came from a page sent to this browser. */
  csrf(session: string): string;
  checkCsrf(request: FastifyRequest): void;
};

export function createSessions(service: Service): Sessions {
  const { store } = service;
  const signedIn = store.rows('sessions');
  const isSecure = () => service.addresses.app.startsWith('https:');
  const cookieName = () => (isSecure() ? '__Host-library' : 'library');
  const sessionOf = (request: FastifyRequest) => request.cookies[cookieName()];
  const csrf = (session: string) => mac(service.key, 'csrf', session);

  function setCookie(reply: FastifyReply): string {
    const session = newSecret();
    reply.setCookie(cookieName(), session, { path: '/', httpOnly: true, sameSite: 'lax', secure: isSecure() });
    return session;
  }

  return {
    begin: (request, reply) => sessionOf(request) ?? setCookie(reply),

    user(request) {
      const session = signedIn.get(digest(sessionOf(request) ?? ''));
      return session && session.expiresAt > service.clock.now() ? service.accounts.user(session.userId) : undefined;
    },

    async signIn(reply, userId) {
      const now = service.clock.now();
      const hash = digest(setCookie(reply));
      await store.change((changes) => {
        for (const old of signedIn.values()) if (old.expiresAt <= now) changes.delete('sessions', old.hash);
        changes.put('sessions', { hash, userId, expiresAt: now + LIFETIME });
      });
    },

    async signOut(request, reply) {
      const hash = digest(sessionOf(request) ?? '');
      await store.change((changes) => signedIn.has(hash) && changes.delete('sessions', hash));
      setCookie(reply);
    },

    csrf,

    checkCsrf(request) {
      const session = sessionOf(request);
      const sent = (request.body as { csrf?: unknown } | undefined)?.csrf;
      if (session && typeof sent === 'string' && same(sent, csrf(session))) return;
      throw new Refusal(
        403,
        'forbidden',
        'This form is no longer valid. Please go back, reload the page and try again.',
      );
    },
  };
}
