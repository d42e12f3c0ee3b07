import type { FastifyReply, FastifyRequest } from 'fastify';
import { HttpError } from '../http-error.ts';
import type { User } from '../model.ts';
import { digest, mac, newSecret, safeEqual } from '../secrets.ts';
import type { Service } from '../service.ts';

const LIFETIME = 12 * 3600 * 1000;

/** Browser sessions. A browser gets a cookie before it signs in, so that the sign-in form is protected, too. */
export class Sessions {
  readonly #service: Service;

  constructor(service: Service) {
    this.#service = service;
  }

  user(request: FastifyRequest): User | undefined {
    const { store, clock, accounts } = this.#service;
    const session = store.rows('sessions').get(digest(this.#cookie(request) ?? ''));
    return session && session.expiresAt > clock.now() ? accounts.user(session.userId) : undefined;
  }

  /** Sets a new cookie, so that a cookie planted before the sign-in is of no use. */
  async signIn(reply: FastifyReply, userId: string): Promise<void> {
    const { store, clock } = this.#service;
    const now = clock.now();
    const hash = digest(this.#setCookie(reply));
    await store.change((changes) => {
      for (const old of store.rows('sessions').values()) {
        if (old.expiresAt <= now) changes.delete('sessions', old.hash);
      }
      changes.put('sessions', { hash, userId, expiresAt: now + LIFETIME });
    });
  }

  async signOut(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { store } = this.#service;
    const hash = digest(this.#cookie(request) ?? '');
    await store.change((changes) => store.rows('sessions').has(hash) && changes.delete('sessions', hash));
    this.#setCookie(reply);
  }

  /** The token for a form. It proves that the form was sent to this browser. */
  csrf(request: FastifyRequest, reply: FastifyReply): string {
    return this.#csrf(this.#cookie(request) ?? this.#setCookie(reply));
  }

  checkCsrf(request: FastifyRequest): void {
    const cookie = this.#cookie(request);
    const sent = (request.body as { csrf?: unknown } | undefined)?.csrf;
    if (cookie && typeof sent === 'string' && safeEqual(sent, this.#csrf(cookie))) return;
    throw new HttpError(403, 'forbidden', 'This form has expired. Go back, reload the page and try again.');
  }

  get #isSecure(): boolean {
    return this.#service.addresses.app.startsWith('https:');
  }

  get #cookieName(): string {
    return this.#isSecure ? '__Host-library' : 'library';
  }

  #csrf(cookie: string): string {
    return mac(this.#service.key, 'csrf', cookie);
  }

  #cookie(request: FastifyRequest): string | undefined {
    return request.cookies[this.#cookieName];
  }

  #setCookie(reply: FastifyReply): string {
    const value = newSecret();
    reply.setCookie(this.#cookieName, value, { path: '/', httpOnly: true, sameSite: 'lax', secure: this.#isSecure });
    return value;
  }
}
