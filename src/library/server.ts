import formBody from '@fastify/formbody';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { connectionOf } from './api/api.ts';
import { alterAnswer, answerWithFault } from './faults/inject.ts';
import type { Fault, Subject } from './faults/rules.ts';
import { HttpError, logLineOf, toHttpError } from './http-error.ts';
import { sendPage } from './pages/layout.ts';
import { problemPage } from './pages/pages.ts';
import type { Endpoint, Entry } from './requests.ts';
import type { Service } from './service.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The name of a route in fault rules and in the request log. */
    endpoint?: Endpoint;
  }
  interface FastifyRequest {
    entry: Entry;
    fault: Fault | null;
  }
}

/** A server with what all endpoints share: request log, faults, and the format of errors. */
export function createServer(service: Service): FastifyInstance {
  const server = fastify({
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 6000 },
    bodyLimit: 64 * 1024,
  });
  server.register(formBody);
  server.decorateRequest('fault', null);

  // With a callback: an async hook could not answer instead of the handler.
  server.addHook('onRequest', (request, reply, done) => {
    const endpoint = request.routeOptions.config.endpoint ?? null;
    request.entry = service.requests.add(request, endpoint, service.clock.now());
    if (!endpoint || service.faults.isEmpty) return done();
    return void injectFault(service, request, reply, endpoint).then((isAnswered) => isAnswered || done(), done);
  });

  server.addHook('onSend', (request, reply, payload, done) => {
    reply.header('x-content-type-options', 'nosniff');
    const answer = request.fault ? alterAnswer(request, reply, request.fault, payload) : payload;
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
    if (!request.headers.accept?.includes('text/html')) throw new HttpError(404, 'not_found', message);
    return sendPage(reply, problemPage(404, 'Not found', message));
  });
  return server;
}

/** Returns whether the request was answered. */
async function injectFault(
  service: Service,
  request: FastifyRequest,
  reply: FastifyReply,
  endpoint: Endpoint,
): Promise<boolean> {
  request.fault = service.faults.next(await subjectOf(service, request, endpoint));
  return request.fault !== null && (await answerWithFault(service, request, reply, request.fault));
}

async function subjectOf(service: Service, request: FastifyRequest, endpoint: Endpoint): Promise<Subject> {
  const { assetId, companyId } = request.params as { assetId?: string; companyId?: string };
  const userId = connectionOf(service, request)?.userId;
  if (assetId === undefined || !service.faults.useCompany) return { endpoint, assetId, companyId, userId };
  return { endpoint, assetId, companyId: (await service.catalogue.find(assetId))?.companyId, userId };
}

export function sendError(service: Service, error: unknown, reply: FastifyReply): FastifyReply {
  const failure = toHttpError(error);
  if (failure.status >= 500) service.log(logLineOf(error));
  return reply
    .code(failure.status)
    .removeHeader('content-length')
    .removeHeader('content-disposition')
    .removeHeader('etag')
    .header('content-type', 'application/json; charset=utf-8')
    .headers(failure.headers)
    .send({ error: failure.code, message: failure.message });
}
