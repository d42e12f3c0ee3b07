import swagger from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { problem } from './problems.ts';

const problems = (description: string) => ({
  description,
  content: { 'application/problem+json': { schema: problem } },
});

/** What any route of the operator API may answer besides what it is for. */
export const refusals = {
  '4xx': problems('It cannot be done as asked; `code` says why, `detail` what to do.'),
  '5xx': problems('It cannot be done at present.'),
};

/** Makes /openapi.json out of the schemas that validate. To be registered before the routes. */
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
        description:
          'Everything an operator can ask of the mirror, and have it do. Errors are RFC 9457 problems with a stable `code`.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: options.publicUrl }],
      tags: [
        { name: 'connections', description: 'Accounts that are mirrored' },
        { name: 'assets', description: 'What is mirrored, and why not' },
        { name: 'syncs', description: 'Runs of the listing' },
        { name: 'events', description: 'What happened' },
        { name: 'verification', description: 'Library, records and bucket compared' },
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
      throw new Error(`${url}: a route of the API says what it is called and what it answers`);
    }
  });
  app.get('/openapi.json', { schema: { hide: true } }, async (_request, reply) =>
    reply.type('application/json').send(withOptionalBodies(app.swagger())),
  );
}

/** The maker of the description takes every body for required. One that may be null may be absent. */
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
