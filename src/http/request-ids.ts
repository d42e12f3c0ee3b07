import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { redact } from '../floor/errors.ts';
import { type Log, withFields } from '../floor/log.ts';

const header = 'x-request-id';

/** Whether an id from outside may be logged: short, without special characters, and no token. */
const acceptable = (id: unknown): id is string =>
  typeof id === 'string' && /^[\w.:+/=-]{1,128}$/.test(id) && redact(id) === id;

/** The id of a request: the one in its `X-Request-Id`, from the client or a proxy, or a new one. */
export function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const given = headers[header];
  return acceptable(given) ? given : randomUUID();
}

/**
 * Adds the request id to the answer and to every log line of the request, and logs how the request ended: changes by
 * operators at level `info`, the rest at `debug`. Addresses are logged as routes, without links, states or names.
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
        ...(operator && { operator: operator.name }),
      },
      'request answered',
    );
  });
}
