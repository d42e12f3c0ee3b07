import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Permissions } from '../../operations/operators/permissions.ts';
import { Refused } from '../../operations/refused.ts';
import { basePath } from '../public-url.ts';
import type { Authentication } from './authenticate.ts';

export interface AccessDeps {
  authentication: Authentication;
  permissions: Permissions;
  publicUrl: string;
}

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Whether a browser sent the request from one of our pages: by Sec-Fetch-Site or, if that is missing (plain HTTP, except on
 * localhost), by Origin.
 */
export function fromOurPages(request: FastifyRequest, publicUrl: string): boolean {
  const site = request.headers['sec-fetch-site'];
  return site === undefined ? request.headers.origin === new URL(publicUrl).origin : site === 'same-origin';
}

/**
 * Finds the operator of a request. False: nobody has signed in.
 * @throws Refused 403 if another site caused the request, 429 after too many wrong tokens
 */
async function identify(request: FastifyRequest, reply: FastifyReply, deps: AccessDeps): Promise<boolean> {
  const operator = await deps.authentication.operatorOf(request, reply);
  if (!operator) return false;
  request.operator = operator;
  if (operator.byCookie && !safeMethods.has(request.method) && !fromOurPages(request, deps.publicUrl)) {
    throw new Refused(
      403,
      'foreign_origin',
      'The request came from another site. Send it from the dashboard, or with a token.',
    );
  }
  return true;
}

/** Requires an operator with the role that the operation of the route needs. */
export function operatorOnly(app: FastifyInstance, deps: AccessDeps): void {
  app.addHook('onRequest', async (request, reply) => {
    // Routes that send files replace this.
    reply.header('cache-control', 'no-store');
    if (!(await identify(request, reply, deps))) {
      reply.header('www-authenticate', 'Bearer realm="asset-mirror"');
      throw new Refused(
        401,
        'unauthorized',
        'The token is missing, wrong, expired or revoked. Send Authorization: Bearer {token}, or sign in at /sign-in.',
      );
    }
    deps.permissions.check(request.operator!, operationIdOf(request));
  });
}

export const operationIdOf = (request: FastifyRequest): string | undefined =>
  (request.routeOptions.schema as { operationId?: string } | undefined)?.operationId;

/** Requires an operator, with any role; others are redirected to the sign-in, which leads back here. */
export function signedInOnly(app: FastifyInstance, deps: AccessDeps): void {
  const base = basePath(deps.publicUrl);
  app.addHook('onRequest', async (request, reply) => {
    if (await identify(request, reply, deps)) return;
    // A script of an open page cannot use a sign-in form.
    if (request.headers.accept?.includes('application/json')) {
      throw new Refused(401, 'unauthorized', 'The session has ended. Sign in at /sign-in.');
    }
    reply.header('cache-control', 'no-store');
    return reply.redirect(`${base}/sign-in?to=${encodeURIComponent(base + request.url)}`, 303);
  });
}
