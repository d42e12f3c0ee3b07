import { randomUUID } from 'node:crypto';
import { type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Log } from '../log.ts';
import { Refused } from '../operations/refused.ts';
import { isAway } from '../store/database/unreachable.ts';

/** What every error looks like. */
export const problem = z
  .object({
    type: z.literal('about:blank'),
    title: z.string(),
    status: z.int(),
    code: z.string().describe('Stable: what programs go by. docs/reference/api.md lists them.'),
    detail: z.string().describe('What happened, to what, and what to do next.'),
    requestId: z.string().describe('As in the header X-Request-Id, and in the log.'),
  })
  .meta({ id: 'Problem' });

/** An error with a stable code and what to do next, sent as `application/problem+json` (RFC 9457). */
export class Problem extends Refused {}

const titles: Record<number, string> = {
  400: 'Bad request',
  401: 'Not signed in',
  403: 'Forbidden',
  404: 'Not found',
  405: 'Not allowed',
  409: 'Conflict',
  413: 'Too large',
  414: 'Address too long',
  415: 'Unsupported media type',
  429: 'Too many requests',
  431: 'Headers too large',
  500: 'Internal error',
  503: 'Not available',
};

/** The framework's own errors by what they mean to who asks. */
const codes: Record<number, string> = {
  400: 'invalid_request',
  404: 'not_found',
  413: 'payload_too_large',
  414: 'address_too_long',
  415: 'unsupported_media_type',
  431: 'headers_too_large',
  503: 'stopping',
};

/** What to do about those whose own words do not say it. */
const remedies: Record<number, string> = {
  413: 'The body is longer than 1 MiB. Ask for less at a time.',
  414: 'The address is longer than any that there is here. /openapi.json has them all.',
  415: 'The body has to be JSON: send it with `Content-Type: application/json`.',
  431: 'The headers are longer than 16 KiB. Send fewer cookies, or shorter ones.',
};

function send(reply: FastifyReply, body: z.infer<typeof problem>): FastifyReply {
  return reply.code(body.status).type('application/problem+json').send(JSON.stringify(body));
}

/** Which request it was, for people and for the log. */
interface About {
  requestId: string;
  method?: string;
  route?: string | undefined;
}

const problemWith = (status: number, code: string, detail: string, { requestId }: About): z.infer<typeof problem> => ({
  type: 'about:blank',
  title: titles[status] ?? 'Error',
  status,
  code,
  detail,
  requestId,
});

/** Turns whatever a route threw into a problem. */
export function problemHandler(log: Log) {
  return (error: FastifyError, request: FastifyRequest, reply: FastifyReply) =>
    send(
      reply,
      problemOf(error, log, { requestId: request.id, method: request.method, route: request.routeOptions.url }),
    );
}

/** What was thrown, as it is told. What nobody expected is logged, with `about`, and told without its details. */
export function problemOf(error: Error, log: Log, about: About): z.infer<typeof problem> {
  const tell = (status: number, code: string, detail: string) => problemWith(status, code, detail, about);
  if (error instanceof Refused) return tell(error.status, error.code, error.message);
  if (hasZodFastifySchemaValidationErrors(error)) {
    const details = error.validation.map((issue) => {
      const field = issue.instancePath.replace(/^\//, '').replaceAll('/', '.');
      return field ? `${field}: ${issue.message}` : issue.message;
    });
    return tell(400, 'invalid_request', `${details.join('; ')}.`);
  }
  const status = (error as FastifyError).statusCode ?? 500;
  if (status < 500) return tell(status, codes[status] ?? 'bad_request', remedies[status] ?? error.message);
  log.error({ err: error, ...about }, 'request failed');
  if (isAway(error)) {
    return tell(503, 'not_available', 'The database does not answer at present. /readyz says when it is back.');
  }
  return tell(
    500,
    'internal_error',
    `Something went wrong here. It is in the log as request ${about.requestId}; try again in a moment.`,
  );
}

export function notFound(request: FastifyRequest, reply: FastifyReply) {
  const detail = 'There is nothing at this address. /openapi.json has all there are.';
  return send(reply, problemWith(404, 'not_found', detail, { requestId: request.id }));
}

/** Of an address that no route is looked for by. */
export function unreadable({ code }: FastifyError, { id: requestId }: FastifyRequest, reply: FastifyReply): void {
  const tooLong = code === 'FST_ERR_MAX_PARAM_LENGTH';
  const detail = tooLong
    ? remedies[414]!
    : 'The address cannot be read: behind a % there have to be two hexadecimal digits.';
  const status = tooLong ? 414 : 400;
  reply.header('x-request-id', requestId);
  send(reply, problemWith(status, codes[status]!, detail, { requestId }));
}

/** Of what is no request at all, or has more headers than are read. */
export function unheard(error: Error & { code?: string }, socket: Socket): void {
  // Into an answer that is under way nothing else is written.
  const { _httpMessage: answer } = socket as Socket & { _httpMessage?: ServerResponse | null };
  if (error.code === 'ECONNRESET' || !socket.writable || answer?.headersSent) return void socket.destroy();
  const status = error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
  const detail = remedies[status] ?? 'This is no HTTP request that can be read, or it took too long to come.';
  const body = JSON.stringify(problemWith(status, codes[status] ?? 'bad_request', detail, { requestId: randomUUID() }));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nContent-Type: application/problem+json\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
    () => socket.destroySoon(),
  );
}
