import { randomUUID } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { storableText } from '../../floor/errors.ts';
import type { Operator } from '../../floor/roles.ts';
import { hashOf, newSecret } from '../../operations/operators/api-tokens.ts';
import type { Session } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import { cookieAt } from '../public-url.ts';
import type { ProviderSettings } from './provider-settings.ts';

export type Sessions = ReturnType<typeof createSessions>;

export interface SessionDeps {
  store: Store;
  adminToken: string;
  publicUrl: string;
  signIn: {
    /** Whether browsers may sign in with ADMIN_TOKEN. */
    token: boolean;
    /** Undefined: operators sign in with ADMIN_TOKEN only. */
    provider: ProviderSettings | undefined;
    /** Milliseconds. */
    sessionIdle: number;
    sessionLifetime: number;
  };
}

const cookieName = 'asset_mirror_session';
const longestUserAgent = 300;

/** Sessions of operators who signed in. They are in the database, so every process knows them, and each can be ended. */
export function createSessions({ store, adminToken, publicUrl, signIn }: SessionDeps) {
  // A link from anywhere leads to a page with it. Changes need a page of this origin: see `fromOurPages`.
  const cookie = cookieAt(publicUrl);
  // If ADMIN_TOKEN, the provider or its roles change, the sessions that the old settings gave end.
  const ofToken = hashOf(`operator session\0${adminToken}`);
  const ofProvider = hashOf(JSON.stringify({ ...signIn.provider, clientSecret: undefined }));
  const givenBy = ({ method }: Operator) => (method === 'admin_token' ? ofToken : ofProvider);
  const { sessionIdle, sessionLifetime } = signIn;

  async function add(request: FastifyRequest, operator: Operator): Promise<string> {
    const secret = newSecret();
    await store.sessions.begin({
      ...operator,
      id: randomUUID(),
      hash: hashOf(secret),
      lifetimeMs: sessionLifetime,
      address: request.ip,
      userAgent: storableText(request.headers['user-agent'] ?? '').slice(0, longestUserAgent) || null,
      givenBy: givenBy(operator),
    });
    return secret;
  }
  const isAllowed = (session: Session) =>
    session.givenBy === givenBy(session) && (session.method !== 'admin_token' || signIn.token);

  return {
    /** Begins a session in a browser, instead of the one that it has. */
    async begin(request: FastifyRequest, reply: FastifyReply, operator: Operator) {
      const before = await this.of(request);
      if (before) await store.sessions.end(before.id);
      const secret = await add(request, operator);
      reply.setCookie(cookieName, secret, { ...cookie, maxAge: sessionLifetime / 1000 });
    },

    /** Begins a session in a terminal, which keeps the secret. */
    beginInTerminal: add,

    /** The session of the browser that sends the request. */
    async of(request: FastifyRequest): Promise<Session | undefined> {
      const secret = request.cookies[cookieName];
      if (secret === undefined) return undefined;
      const session = await store.sessions.use(hashOf(secret), sessionIdle);
      return session && session.method !== 'device' && isAllowed(session) ? session : undefined;
    },

    /** The session of a terminal with this secret. */
    async ofTerminal(secret: string): Promise<Session | undefined> {
      const session = await store.sessions.use(hashOf(secret), sessionIdle);
      return session?.method === 'device' && isAllowed(session) ? session : undefined;
    },

    async isLive(id: string): Promise<boolean> {
      const session = await store.sessions.get(id, sessionIdle);
      return session !== undefined && isAllowed(session);
    },

    async end(session: Session, reply: FastifyReply): Promise<void> {
      await store.sessions.end(session.id);
      reply.clearCookie(cookieName, cookie);
    },
  };
}
