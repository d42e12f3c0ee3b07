import { timingSafeEqual } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { assetQuery } from '../operations/assets.ts';
import { connectionSettingsRequest } from '../operations/connection-settings.ts';
import { connectLinkRequest } from '../operations/connections.ts';
import type { Operations } from '../operations/operations.ts';
import { settingsRequest } from '../operations/settings.ts';
import { resyncRequest } from '../operations/syncs.ts';
import { idParams } from '../operations/text.ts';
import { linesQuery, verifyRequest } from '../operations/verifications.ts';
import { Problem } from './problems.ts';

/** Lets in who holds the operators' token (RFC 6750). Compared in constant time. */
export function operatorOnly(app: FastifyInstance, adminToken: string): void {
  const expected = Buffer.from(adminToken);
  app.addHook('onRequest', async (request, reply) => {
    const given = Buffer.from(/^Bearer +(.+)$/i.exec(request.headers.authorization ?? '')?.[1]?.trim() ?? '');
    if (given.length === expected.length && timingSafeEqual(given, expected)) return;
    reply.header('www-authenticate', 'Bearer realm="asset-mirror"');
    throw new Problem(401, 'unauthorized', "Send the operators' token: Authorization: Bearer {ADMIN_TOKEN}.");
  });
}

/** The operator API: each route is one call of an operation. */
export function apiRoutes(plain: FastifyInstance, operations: Operations): void {
  const app = plain.withTypeProvider<ZodTypeProvider>();

  app.post('/connect-links', { schema: { body: connectLinkRequest.nullish() } }, async (request, reply) =>
    reply.code(201).send(await operations.createConnectLink(request.body ?? {})),
  );
  app.get('/status', async () => operations.status());
  app.get('/connections', async () => operations.connections());
  app.get('/connections/:id', { schema: { params: idParams } }, async (request) =>
    operations.connection(request.params.id),
  );
  app.patch('/connections/:id', { schema: { params: idParams, body: connectionSettingsRequest } }, async (request) =>
    operations.changeConnection(request.params.id, request.body),
  );
  app.post('/connections/:id/resync', { schema: { params: idParams, body: resyncRequest } }, async (request, reply) =>
    reply.code(202).send(await operations.resync(request.params.id, request.body)),
  );
  app.post('/verify', { schema: { body: verifyRequest.nullish() } }, async (request, reply) =>
    reply.code(202).send(await operations.verify(request.body ?? {})),
  );
  app.get('/verify/:id', { schema: { params: idParams, querystring: linesQuery } }, async (request) =>
    operations.verification(request.params.id, request.query),
  );
  app.post('/keys/rotate', async () => operations.rotateKeys());
  app.get('/settings', async () => operations.settings());
  app.patch('/settings', { schema: { body: settingsRequest } }, async (request) =>
    operations.changeSettings(request.body),
  );
  app.get('/assets', { schema: { querystring: assetQuery } }, async (request) => operations.assets(request.query));
}
