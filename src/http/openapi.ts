import swagger from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { problem } from './problems.ts';

const problems = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: problem } },
});

/** The errors of every route of the operator API. */
export const refusals = {
  '4xx': problems('The request was refused; `code` says why, `detail` what to do.'),
  '5xx': problems('The service cannot answer now; try again later.'),
};

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
      tags: [
        { name: 'connections', description: 'Connected accounts' },
        { name: 'assets', description: 'Assets and their state in the mirror' },
        { name: 'syncs', description: 'Runs that list the library' },
        { name: 'events', description: 'Events and history' },
        { name: 'verification', description: 'Comparisons of library, database and bucket' },
        { name: 'service', description: 'The mirror itself' },
      ],
      components: {
        securitySchemes: {
          token: { type: 'http', scheme: 'bearer', description: 'ADMIN_TOKEN' },
          session: { type: 'apiKey', in: 'cookie', name: 'asset_mirror_session', description: 'From /sign-in' },
        },
      },
      security: [{ token: [] }, { session: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: jsonSchemaTransformObject,
  });
  app.addHook('onRoute', ({ url, schema }) => {
    const { operationId, response, hide } = (schema ?? {}) as {
      operationId?: string;
      response?: object;
      hide?: boolean;
    };
    if (url.startsWith('/api/') && (hide || !operationId || !response)) {
      throw new Error(`${url}: a route of the API needs an operationId and a response schema`);
    }
  });
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) =>
    reply.type('application/json').send(withOptionalBodies(app.swagger())),
  );
}

/** @fastify/swagger marks every body as required. A body that may be null may also be absent. */
function withOptionalBodies(description: object): object {
  const { paths } = description as { paths: Record<string, Record<string, { requestBody?: Body }>> };
  for (const { requestBody } of Object.values(paths).flatMap((path) => Object.values(path))) {
    const { anyOf = [] } = requestBody?.content['application/json']?.schema ?? {};
    if (requestBody && anyOf.some(({ type }) => type === 'null')) requestBody.required = false;
  }
  return description;
}

interface Body {
  required: boolean;
  content: Record<string, { schema: { anyOf?: { type?: string }[] } }>;
}
