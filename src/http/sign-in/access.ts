import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Refused } from '../../operations/refused.ts';
import type { Sessions } from './sessions.ts';
import type { TokenCheck } from './token-check.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** How the operator was authenticated. */
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
 * Whether a browser sent the request from one of our pages: by Sec-Fetch-Site or, if that is missing (plain HTTP, except on
 * localhost), by Origin.
 */
export function fromOurPages(request: FastifyRequest, publicUrl: string): boolean {
  const site = request.headers['sec-fetch-site'];
  return site === undefined ? request.headers.origin === new URL(publicUrl).origin : site === 'same-origin';
}

/**
 * Whether a request has the operators' token; undefined if it has no token.
 * @throws Refused 429 after too many wrong ones from its address
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
  throw new Refused(
    429,
    'too_many_wrong_tokens',
    `Too many wrong tokens from this address. Try again in ${verdict.wait} seconds, with the token in ADMIN_TOKEN.`,
  );
}

/** Requires the operator token (RFC 6750), or a session. */
export function operatorOnly(app: FastifyInstance, deps: AccessDeps): void {
  app.addHook('onRequest', async (request, reply) => {
    const token = await bearsToken(request, reply, deps.checkToken);
    if (token) {
      request.operator = 'token';
      return;
    }
    if (token === undefined && (await deps.sessions.holds(request))) {
      if (!safe.has(request.method) && !fromOurPages(request, deps.publicUrl)) {
        throw new Refused(
          403,
          'foreign_origin',
          'The request came from another site. Send it from the dashboard, or with the token.',
        );
      }
      request.operator = 'session';
      return;
    }
    reply.header('www-authenticate', 'Bearer realm="asset-mirror"');
    throw new Refused(
      401,
      'unauthorized',
      'Send the operator token (Authorization: Bearer {ADMIN_TOKEN}), or sign in at /sign-in.',
    );
  });
}

/** Requires a session or the token; others are redirected to the sign-in, which leads back here. */
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
      throw new Refused(403, 'foreign_origin', 'The request came from another site.');
    }
    // A script of an open page cannot use a sign-in form.
    if (request.headers.accept?.includes('application/json')) {
      throw new Refused(401, 'unauthorized', 'The session has ended. Sign in at /sign-in.');
    }
    reply.header('cache-control', 'no-store');
    return reply.redirect(`${base}/sign-in?to=${encodeURIComponent(base + request.url)}`, 303);
  });
}
