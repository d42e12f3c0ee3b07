import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Log } from '../floor/log.ts';
import { Refused } from '../operations/refused.ts';
import { isUnreachable } from '../store/database/unreachable.ts';

const documentation = 'https://github.com/asset-mirror/asset-mirror/blob/main/docs/reference/api.md#problems';

/** The form of every error. */
export const problem = z
  .object({
    type: z.literal(documentation).describe('The documentation of all problems.'),
    title: z.string(),
    status: z.int(),
    code: z.string().describe('Stable, for programs. docs/reference/api.md lists the codes.'),
    detail: z.string().describe('What happened, to what, and what to do next.'),
    requestId: z.string().describe('As in the header X-Request-Id, and in the log.'),
    errors: z
      .array(
        z.object({
          field: z.string().describe('Such as `include.companyIds`.'),
          detail: z.string(),
          value: z.string().optional(),
          known: z
            .array(z.object({ id: z.string(), name: z.string() }))
            .optional()
            .describe('The first 30 possible values; absent: the library does not list them now.'),
        }),
      )
      .optional()
      .describe(
        'Each wrong field of `invalid_request`; each unknown name of `unknown_name`, with `value` and `known`.',
      ),
  })
  .meta({ id: 'Problem' });

const titles: Record<number, string> = {
  400: 'Bad request',
  401: 'Not signed in',
  403: 'Forbidden',
  404: 'Not found',
  405: 'Not allowed',
  408: 'Request timeout',
  409: 'Conflict',
  410: 'Expired',
  413: 'Too large',
  414: 'Address too long',
  415: 'Unsupported media type',
  429: 'Too many requests',
  431: 'Headers too large',
  500: 'Internal error',
  503: 'Not available',
};

/** The codes of errors of the framework. */
const codes: Record<number, string> = {
  400: 'invalid_request',
  404: 'not_found',
  408: 'request_timeout',
  413: 'payload_too_large',
  414: 'address_too_long',
  415: 'unsupported_media_type',
  431: 'headers_too_large',
  503: 'stopping',
};

/** Details for errors whose own message does not say what to do. */
const remedies: Record<number, string> = {
  408: 'The request arrived too slowly. Send it again.',
  413: 'The body is longer than 1 MiB. Send less at a time.',
  414: 'The address is too long. /openapi.json lists all routes.',
  415: 'The body must be JSON. Send it with `Content-Type: application/json`.',
  431: 'The headers are longer than 16 KiB. Send fewer cookies, or shorter ones.',
};

function send(reply: FastifyReply, body: z.infer<typeof problem>): FastifyReply {
  return reply.code(body.status).type('application/problem+json').send(JSON.stringify(body));
}

/** Identifies the request, for people and for the log. */
interface About {
  requestId: string;
  method?: string;
  route?: string | undefined;
}

const problemWith = (status: number, code: string, detail: string, { requestId }: About): z.infer<typeof problem> => ({
  type: documentation,
  title: titles[status] ?? 'Error',
  status,
  code,
  detail,
  requestId,
});

/** Turns an error of a route into a problem. */
export function problemHandler(log: Log) {
  return (error: FastifyError, request: FastifyRequest, reply: FastifyReply) =>
    send(
      reply,
      problemOf(error, log, { requestId: request.id, method: request.method, route: request.routeOptions.url }),
    );
}

/** The problem for an error. An unexpected one is logged with `about`, and answered without details. */
export function problemOf(error: Error, log: Log, about: About): z.infer<typeof problem> {
  const answer = (status: number, code: string, detail: string) => problemWith(status, code, detail, about);
  if (error instanceof Refused) {
    return { ...answer(error.status, error.code, error.message), ...(error.errors && { errors: error.errors }) };
  }
  if (hasZodFastifySchemaValidationErrors(error)) {
    const errors = error.validation.map(({ instancePath, message: detail = 'wrong' }) => ({
      field: instancePath.replace(/^\//, '').replaceAll('/', '.'),
      detail,
    }));
    const details = errors.map(({ field, detail }) => (field ? `${field}: ${detail}` : detail));
    return { ...answer(400, 'invalid_request', `${details.join('; ')}.`), errors };
  }
  const status = (error as FastifyError).statusCode ?? 500;
  if (status < 500) return answer(status, codes[status] ?? 'bad_request', remedies[status] ?? error.message);
  log.error({ event: 'request.failed', err: error, ...about }, 'request failed');
  if (isUnreachable(error)) {
    return answer(503, 'not_available', 'The database does not answer now. Try again when /readyz reports ready.');
  }
  return answer(
    500,
    'internal_error',
    `An unexpected error. The log has it as request ${about.requestId}. Try again later.`,
  );
}

export function notFound(request: FastifyRequest, reply: FastifyReply) {
  const detail = 'There is no such route. /openapi.json lists all routes.';
  return send(reply, problemWith(404, 'not_found', detail, { requestId: request.id }));
}

/** For an address that cannot be parsed, or has too long a part. */
export function invalidAddress({ code }: FastifyError, { id: requestId }: FastifyRequest, reply: FastifyReply): void {
  const tooLong = code === 'FST_ERR_MAX_PARAM_LENGTH';
  const detail = tooLong ? remedies[414]! : 'The address is invalid: a % must be followed by two hexadecimal digits.';
  const status = tooLong ? 414 : 400;
  reply.header('x-request-id', requestId);
  send(reply, problemWith(status, codes[status]!, detail, { requestId }));
}

/** For input that is not HTTP, or has too many headers. */
export function invalidHttp(error: Error & { code?: string }, socket: Socket): void {
  // Never write into a response that has begun. If this connection has sent bytes, they may belong to one.
  if (error.code === 'ECONNRESET' || !socket.writable || socket.bytesWritten > 0) return void socket.destroy();
  const status = error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
  const detail = remedies[status] ?? 'This is not a valid HTTP request.';
  const body = JSON.stringify(problemWith(status, codes[status] ?? 'bad_request', detail, { requestId: randomUUID() }));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/problem+json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    () => socket.destroySoon(),
  );
}
