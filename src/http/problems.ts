import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Log } from '../log.ts';
import { Refused } from '../operations/refused.ts';

/** What every error looks like. */
export const problem = z
  .object({
    type: z.literal('about:blank'),
    title: z.string(),
    status: z.int(),
    code: z.string().describe('Stable: what programs go by. docs/api.md lists them.'),
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
  415: 'Unsupported media type',
  500: 'Internal error',
  503: 'Not available',
};

/** The framework's own errors by what they mean to who asks. */
const codes: Record<number, string> = {
  400: 'invalid_request',
  404: 'not_found',
  413: 'payload_too_large',
  415: 'unsupported_media_type',
  503: 'stopping',
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
  if (status < 500) return tell(status, codes[status] ?? 'bad_request', error.message);
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

/** No connection to the database: of the network, or by the server that is starting or stopping (SQLSTATE 57P01 to 57P03). */
function isAway(error: unknown): boolean {
  const { code, message } = error as { code?: string; message?: string };
  return (
    /^(ECONN|EPIPE|57P0)/.test(code ?? '') ||
    /^(Connection terminated|timeout exceeded when trying)/.test(message ?? '')
  );
}

export function notFound(request: FastifyRequest, reply: FastifyReply) {
  return send(reply, problemWith(404, 'not_found', 'There is nothing at this address.', { requestId: request.id }));
}
