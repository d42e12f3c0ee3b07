import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Problem } from './problems.ts';
import type { Sessions } from './session.ts';
import type { TokenCheck } from './token-check.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** How the operator showed who they are. */
    operator?: 'token' | 'session';
  }
}

export interface AccessDeps {
  sessions: Sessions;
  checkToken: TokenCheck;
  publicUrl: string;
}

const safe = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Whether a browser sent it from a page of ours. Each says where a request comes from: by Sec-Fetch-Site, or, where that is
 * not sent (plain HTTP elsewhere than on this machine), by Origin.
 */
export function fromOurPages(request: FastifyRequest, publicUrl: string): boolean {
  const site = request.headers['sec-fetch-site'];
  return site === undefined ? request.headers.origin === new URL(publicUrl).origin : site === 'same-origin';
}

/**
 * Whether a request carries the operators' token; undefined if it carries none.
 * @throws Problem 429 after too many wrong ones from its address
 */
async function bearsToken(
  request: FastifyRequest,
  reply: FastifyReply,
  checkToken: TokenCheck,
): Promise<boolean | undefined> {
  const { authorization } = request.headers;
  if (authorization === undefined) return undefined;
  const given = /^Bearer +(.+)$/i.exec(authorization)?.[1]?.trim() ?? '';
  const verdict = await checkToken(given, request.ip);
  if (typeof verdict === 'string') return verdict === 'right';
  reply.header('retry-after', verdict.wait);
  throw new Problem(
    429,
    'too_many_wrong_tokens',
    `Too many wrong tokens came from this address. Send the operators' token, or try again in ${verdict.wait} seconds.`,
  );
}

/** Lets in who holds the operators' token (RFC 6750), or has signed in with it. */
export function operatorOnly(app: FastifyInstance, deps: AccessDeps): void {
  app.addHook('onRequest', async (request, reply) => {
    const token = await bearsToken(request, reply, deps.checkToken);
    if (token) {
      request.operator = 'token';
      return;
    }
    if (token === undefined && (await deps.sessions.holds(request))) {
      if (!safe.has(request.method) && !fromOurPages(request, deps.publicUrl)) {
        throw new Problem(
          403,
          'foreign_origin',
          'This was sent from a page elsewhere. Send it from here, or with the token.',
        );
      }
      request.operator = 'session';
      return;
    }
    reply.header('www-authenticate', 'Bearer realm="asset-mirror"');
    throw new Problem(
      401,
      'unauthorized',
      "Send the operators' token (Authorization: Bearer {ADMIN_TOKEN}), or sign in at /sign-in.",
    );
  });
}

/** Pages for who has signed in, or sends the token; others are asked to sign in first, and come back then. */
export function signedInOnly(app: FastifyInstance, deps: AccessDeps): void {
  const base = new URL(deps.publicUrl).pathname.replace(/\/+$/, '');
  app.addHook('onRequest', async (request, reply) => {
    if (await bearsToken(request, reply, deps.checkToken)) {
      request.operator = 'token';
      return;
    }
    if (await deps.sessions.holds(request)) {
      if (safe.has(request.method) || fromOurPages(request, deps.publicUrl)) {
        request.operator = 'session';
        return;
      }
      throw new Problem(403, 'foreign_origin', 'This was sent from a page elsewhere.');
    }
    // A page that was open before asks for more: a form would be no answer to that.
    if (request.headers.accept?.includes('application/json')) {
      throw new Problem(401, 'unauthorized', 'The session has ended. Sign in at /sign-in.');
    }
    reply.header('cache-control', 'no-store');
    return reply.redirect(`${base}/sign-in?to=${encodeURIComponent(base + request.url)}`, 303);
  });
}
