import swagger from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { leastRoles, type OperationId } from '../operations/operators/permissions.ts';
import { withOptionalBodies, withUsedSchemas } from './openapi-workarounds.ts';
import { problem } from './problems.ts';

const problems = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: problem } },
});

const descriptions = {
  400: 'A field, the cursor or a name is wrong; `detail` and `errors` say which.',
  401: 'The token is missing, wrong, expired or revoked, or the session has ended.',
  403: 'The role is too low, or a page of another site sent the request.',
  404: 'The id is unknown.',
  409: 'Not possible in the present state; `code` and `detail` say why.',
  410: 'Changes after the cursor are missing: it is too old, or of another database. Begin again from the inventory.',
  413: 'The body is longer than 1 MiB.',
  414: 'The id is too long.',
  415: 'The body is not JSON.',
  416: 'The range is not in the file; `Content-Range` has its length.',
  429: 'Too many wrong tokens from this address; wait as `Retry-After` says.',
  '5xx': 'asset-mirror cannot answer now; try again later.',
} as const;
export type RefusedStatus = keyof typeof descriptions;

/** These errors, for the responses of a route. `commonRefusals` are added to them. */
export const refused = <const Statuses extends readonly RefusedStatus[]>(...statuses: Statuses) =>
  Object.fromEntries(statuses.map((status) => [status, problems(descriptions[status])])) as {
    [Status in Statuses[number]]: ReturnType<typeof problems>;
  };

/** The groups of routes. */
export const tags = [
  { name: 'connections', description: 'Connected accounts' },
  { name: 'assets', description: 'Assets and their state in the mirror' },
  { name: 'syncs', description: 'Runs that list the library' },
  { name: 'events', description: 'Events and history' },
  { name: 'webhooks', description: 'Where events are sent' },
  { name: 'verification', description: 'Comparisons of library, database and bucket' },
  { name: 'removals', description: 'Removals from the bucket, protection from them, and erasures' },
  { name: 'access', description: 'Operators, their sessions, API tokens, and the audit log' },
  { name: 'service', description: 'The mirror itself' },
] as const;

interface ApiSchema {
  operationId?: string;
  response?: object;
  hide?: boolean;
  params?: unknown;
  querystring?: unknown;
}

/** The errors of all routes with this method and these parameters. */
function commonRefusals(changes: boolean, { operationId, params, querystring }: ApiSchema) {
  const isForAll = leastRoles[operationId as OperationId] === 'viewer';
  return {
    ...refused(401, 429, '5xx'),
    ...(changes ? refused(400, 413, 415) : {}),
    ...(changes || !isForAll ? refused(403) : {}),
    ...(querystring ? refused(400) : {}),
    ...(params ? refused(400, 414) : {}),
  };
}

/** Serves /openapi.json, made from the schemas that validate. Register it before the routes. */
export async function describeApi(
  app: FastifyInstance,
  options: { publicUrl: string; version: string },
): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'asset-mirror operator API',
        version: options.version,
        description: 'Everything that an operator can see and do. Errors are RFC 9457 problems with a stable `code`.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: options.publicUrl }],
      tags: [...tags],
      components: {
        securitySchemes: {
          token: { type: 'http', scheme: 'bearer', description: 'ADMIN_TOKEN, or an API token' },
          session: { type: 'apiKey', in: 'cookie', name: 'asset_mirror_session', description: 'From /sign-in' },
        },
      },
      security: [{ token: [] }, { session: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: jsonSchemaTransformObject,
  });
  app.addHook('onRoute', ({ url, method, schema = {} }) => {
    if (!url.startsWith('/api/')) return;
    const api = schema as ApiSchema;
    if (api.hide || !api.operationId || !api.response) {
      throw new Error(`${url}: a route of the API needs an operationId and a response schema`);
    }
    api.response = { ...commonRefusals(!['GET', 'HEAD'].includes(String(method)), api), ...api.response };
  });
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) =>
    reply.type('application/json').send(withUsedSchemas(withOptionalBodies(app.swagger()))),
  );
}
