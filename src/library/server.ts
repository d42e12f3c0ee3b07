import formBody from '@fastify/formbody';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { connectionOf } from './api/api.ts';
import { sendFault, spoil } from './faults/inject.ts';
import type { Fault } from './faults/rules.ts';
import { sendPage } from './pages/layout.ts';
import { problemPage } from './pages/pages.ts';
import type { Endpoint, Entry } from './requests.ts';
import { Refusal, type Service } from './service.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The name under which faults and the request log know a route. */
    endpoint?: Endpoint;
  }
  interface FastifyRequest {
    entry: Entry;
    fault: Fault | null;
  }
}

/** A server with what all endpoints share: the request log, the faults, the shape of errors. */
export function createServer(service: Service): FastifyInstance {
  const server = fastify({
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 1000 },
    bodyLimit: 64 * 1024,
  });
  server.register(formBody);
  server.decorateRequest('fault', null);

  // With a callback, because only so a hook can answer slowly, or never, and no handler answers as well.
  server.addHook('onRequest', (request, reply, done) => {
    const endpoint = request.routeOptions.config.endpoint ?? null;
    request.entry = service.requests.begin(request, endpoint, service.clock.now());
    if (!endpoint || !service.faults.areThere()) return done();
    return void meetFault(service, request, reply, endpoint).then((isAnswered) => isAnswered || done(), done);
  });

  server.addHook('onSend', (request, reply, payload, done) => {
    reply.header('x-content-type-options', 'nosniff');
    const answer = request.fault ? spoil(request, reply, request.fault, payload) : payload;
    request.entry.status = request.fault?.dropAnswer ? 0 : reply.statusCode;
    if (typeof answer === 'string' && request.method !== 'HEAD') request.entry.bytes = Buffer.byteLength(answer);
    done(null, answer);
  });

  server.addHook('onResponse', (request, reply, done) => {
    const { method, path, status, bytes } = request.entry;
    service.log({ method, path, status, bytes, ms: Math.round(10 * reply.elapsedTime) / 10 });
    done();
  });

  server.setErrorHandler((error, _request, reply) => sendError(service, error, reply));
  server.setNotFoundHandler(async (request, reply) => {
    const message = 'There is nothing at this address.';
    if (!request.headers.accept?.includes('text/html')) throw new Refusal(404, 'not_found', message);
    return sendPage(reply, problemPage(404, 'Not found', message));
  });
  return server;
}

async function meetFault(
  service: Service,
  request: FastifyRequest,
  reply: FastifyReply,
  endpoint: Endpoint,
): Promise<boolean> {
  request.fault = service.faults.hit({ endpoint, ...(await subject(service, request)) });
  return request.fault !== null && (await sendFault(service, request, reply, request.fault));
}

/** What a fault rule can ask a request for. The company of an asset is looked up only for rules that name one. */
async function subject(
  service: Service,
  request: FastifyRequest,
): Promise<{ assetId?: string | undefined; companyId?: string | undefined; userId?: string | undefined }> {
  const { assetId, companyId } = request.params as { assetId?: string; companyId?: string };
  const userId = connectionOf(service, request)?.userId;
  if (assetId === undefined || !service.faults.askForCompany()) return { assetId, companyId, userId };
  return { assetId, companyId: (await service.catalogue.find(assetId))?.companyId, userId };
}

function sendError(service: Service, error: unknown, reply: FastifyReply): FastifyReply {
  const refusal = asRefusal(error);
  if (refusal.status >= 500) service.log({ error: error instanceof Error ? error.stack : String(error) });
  return reply
    .code(refusal.status)
    .removeHeader('content-length')
    .removeHeader('content-disposition')
    .removeHeader('etag')
    .header('content-type', 'application/json; charset=utf-8')
    .headers(refusal.headers)
    .send({ error: refusal.code, message: refusal.message });
}

/** The framework's own refusals (a body that is no JSON, one too large) keep their status. */
export function asRefusal(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  const status = (error as { statusCode?: number }).statusCode;
  if (status !== undefined && status < 500) return new Refusal(status, 'invalid_request', (error as Error).message);
  return new Refusal(500, 'server_error', 'Something went wrong on our side.');
}
