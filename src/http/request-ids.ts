import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { scrub } from '../errors.ts';
import { type Log, withFields } from '../log.ts';

const header = 'x-request-id';

/** What others call their requests: short, of letters that mean nothing anywhere, and no token. */
const acceptable = (id: unknown): id is string =>
  typeof id === 'string' && /^[\w.:+/=-]{1,128}$/.test(id) && scrub(id) === id;

/** The id of a request: that which whoever asks, or a proxy before us, has given it (`X-Request-Id`), or a new one. */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const given = headers[header];
  return acceptable(given) ? given : randomUUID();
}

/**
 * Each request has an id (`genReqId: requestIdOf`): in its answer, on every line that is logged in its course, and on one
 * that says how it ended: of what is asked at level `debug`, of what an operator changes at `info`. Addresses are told as
 * routes, so no link, state or name is in them.
 */
export function correlate(app: FastifyInstance, log: Log): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.header(header, request.id);
    withFields({ requestId: request.id }, done);
  });
  app.addHook('onResponse', async (request, reply) => {
    const { method, operator } = request;
    const changes = operator && method !== 'GET' && method !== 'HEAD';
    log[changes ? 'info' : 'debug'](
      {
        event: 'request.answered',
        requestId: request.id,
        method,
        route: request.routeOptions.url ?? null,
        status: reply.statusCode,
        ms: Math.round(reply.elapsedTime),
        ...(operator && { operator }),
      },
      'request answered',
    );
  });
}
