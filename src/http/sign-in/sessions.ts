import { createHash, randomUUID } from 'node:crypto';
import type { CookieSerializeOptions } from '@fastify/cookie';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Sealer } from '../../oauth/seal.ts';
import type { Store } from '../../store/store.ts';

export type Sessions = ReturnType<typeof createSessions>;

const cookieName = 'asset_mirror_session';
const purpose = 'operator session';
const lifetimeMs = 12 * 3_600_000;

const contents = z.object({
  id: z.string(),
  /** Epoch milliseconds. */
  until: z.number(),
  /** The digest of the token at sign-in: another token ends all sessions. */
  token: z.string(),
});

/**
 * Sessions of operators who signed in: a sealed cookie, valid in every process that has the keys, until it expires, its
 * operator signs out, or the operators' token changes.
 */
export function createSessions(deps: { sealer: Sealer; store: Store; adminToken: string; publicUrl: string }) {
  const { protocol, pathname } = new URL(deps.publicUrl);
  const cookie: CookieSerializeOptions = {
    path: pathname.replace(/\/+$/, '') || '/',
    httpOnly: true,
    sameSite: 'strict',
    secure: protocol === 'https:',
  };
  const token = createHash('sha256').update(`${purpose}\0${deps.adminToken}`).digest('base64url');

  function read(request: FastifyRequest): z.infer<typeof contents> | undefined {
    const sealed = request.cookies[cookieName];
    if (sealed === undefined) return undefined;
    try {
      const session = contents.parse(JSON.parse(deps.sealer.open(purpose, sealed)));
      return session.token === token && session.until > Date.now() ? session : undefined;
    } catch {
      return undefined;
    }
  }

  return {
    begin(reply: FastifyReply): void {
      const session = { id: randomUUID(), until: Date.now() + lifetimeMs, token };
      const sealed = deps.sealer.seal(purpose, JSON.stringify(session));
      reply.setCookie(cookieName, sealed, { ...cookie, maxAge: lifetimeMs / 1000 });
    },

    /** Whether the request has the session of an operator who signed in and has not signed out. */
    async holds(request: FastifyRequest): Promise<boolean> {
      const session = read(request);
      return session !== undefined && !(await deps.store.sessions.ended(session.id));
    },

    async end(request: FastifyRequest, reply: FastifyReply): Promise<void> {
      const session = read(request);
      if (session) await deps.store.sessions.end(session.id, new Date(session.until));
      reply.clearCookie(cookieName, cookie);
    },
  };
}
