import type { Operations } from '../../operations/operations.ts';
import { createdToken, revokedToken, tokenList, tokenRequest } from '../../operations/operators/api-tokens.ts';
import { auditList, auditQuery } from '../../operations/operators/audit.ts';
import { meAnswer } from '../../operations/operators/me.ts';
import { endedSession, sessionList } from '../../operations/operators/sessions.ts';
import { refused } from '../openapi.ts';
import { type Api, answering, ofOne, routesOf } from './route.ts';

const route = routesOf('access');

export function accessRoutes(app: Api, operations: Operations): void {
  app.get('/me', route('getMe', 'Get your name and role, and what you may do', answering(meAnswer)), async (request) =>
    operations.me(request.operator!),
  );
  app.get(
    '/sessions',
    route('listSessions', 'List your sessions; an admin sees those of all operators', answering(sessionList)),
    async (request) => operations.sessions(request.operator!),
  );
  app.delete(
    '/sessions/:id',
    route('endSession', 'End one of your sessions; an admin can end any', ofOne(endedSession, 404)),
    async (request) => operations.endSession(request.params.id, request.operator!),
  );
  app.get('/tokens', route('listTokens', 'List API tokens', answering(tokenList)), async () => operations.tokens());
  app.post(
    '/tokens',
    route('createToken', 'Create an API token; only this answer contains it', {
      body: tokenRequest,
      response: { 201: createdToken, ...refused(409) },
    }),
    async (request, reply) => reply.code(201).send(await operations.createToken(request.body, request.operator!)),
  );
  app.delete(
    '/tokens/:id',
    route('revokeToken', 'Revoke an API token, by id or name; it stops working at once', ofOne(revokedToken, 404)),
    async (request) => operations.revokeToken(request.params.id),
  );
  app.get(
    '/audit',
    route('listAudit', 'List what operators did and tried to do, newest first', {
      querystring: auditQuery,
      response: { 200: auditList },
    }),
    async (request) => operations.auditLog(request.query),
  );
}
