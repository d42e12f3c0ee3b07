import { connectLink, connectLinkRequest } from '../../operations/connections/connect-links.ts';
import { connectionSettingsRequest } from '../../operations/connections/connection-settings.ts';
import {
  changedConnection,
  connectionAnswer,
  connectionList,
  connectionQuery,
  disconnectAnswer,
  retriedAnswer,
} from '../../operations/connections/connections.ts';
import { projectList } from '../../operations/connections/projects.ts';
import { acceptsChanges, resyncAnswer, resyncRequest } from '../../operations/connections/syncs.ts';
import { idParams } from '../../operations/fields.ts';
import type { Operations } from '../../operations/operations.ts';
import type { Permissions } from '../../operations/operators/permissions.ts';
import { refused } from '../openapi.ts';
import { type Api, ofOne, routesOf } from './route.ts';

const route = routesOf('connections');

export function connectionRoutes(app: Api, operations: Operations, permissions: Permissions): void {
  app.post(
    '/connect-links',
    route('createConnectLink', 'Create a signed link with which a user connects or reconnects', {
      body: connectLinkRequest.nullish(),
      response: { 201: connectLink, ...refused(404) },
    }),
    async (request, reply) => reply.code(201).send(await operations.createConnectLink(request.body ?? {})),
  );
  app.get(
    '/connections',
    route('listConnections', 'List connections, in the order in which they connected', {
      querystring: connectionQuery,
      response: { 200: connectionList },
    }),
    async (request) => operations.connections(request.query),
  );
  app.get(
    '/connections/:id',
    route('getConnection', 'Get one connection', ofOne(connectionAnswer, 404)),
    async (request) => operations.connection(request.params.id),
  );
  app.patch(
    '/connections/:id',
    route('changeConnection', 'Change the settings of a connection; they apply at once', {
      params: idParams,
      body: connectionSettingsRequest,
      response: { 200: changedConnection, ...refused(404) },
    }),
    async (request) => {
      const { holdMissing, holdReplaced } = request.body;
      // Higher limits accept what would be held.
      if (holdMissing !== undefined || holdReplaced !== undefined) {
        permissions.check(request.operator!, 'acceptHeldChanges');
      }
      return operations.changeConnection(request.params.id, request.body);
    },
  );
  app.get(
    '/connections/:id/projects',
    route(
      'listProjects',
      'List the projects that a connection can read, with their current names',
      ofOne(projectList, 404, 409),
    ),
    async (request) => operations.projects(request.params.id),
  );
  actionRoutes(app, operations, permissions);
}

/** The routes that start or stop work of a connection. */
function actionRoutes(app: Api, operations: Operations, permissions: Permissions): void {
  app.post(
    '/connections/:id/resync',
    route('resyncConnection', 'Start an incremental, full or partial sync', {
      params: idParams,
      body: resyncRequest,
      response: { 202: resyncAnswer, ...refused(404, 409) },
    }),
    async (request, reply) => {
      if (acceptsChanges(request.body)) permissions.check(request.operator!, 'acceptHeldChanges');
      return reply.code(202).send(await operations.resync(request.params.id, request.body));
    },
  );
  app.post(
    '/connections/:id/pause',
    route('pauseConnection', 'Stop all work for a connection until it is resumed', ofOne(connectionAnswer, 404, 409)),
    async (request) => operations.pause(request.params.id),
  );
  app.post(
    '/connections/:id/resume',
    route('resumeConnection', 'Continue a paused connection', ofOne(connectionAnswer, 404, 409)),
    async (request) => operations.resume(request.params.id),
  );
  app.post(
    '/connections/:id/disconnect',
    route(
      'disconnectConnection',
      'End a connection and revoke its grant; the bucket keeps its files',
      ofOne(disconnectAnswer, 404),
    ),
    async (request) => operations.disconnect(request.params.id),
  );
  app.post(
    '/connections/:id/retry-failed',
    route('retryFailedOfConnection', 'Retry all failed assets of a connection', {
      params: idParams,
      response: { 202: retriedAnswer, ...refused(404, 409) },
    }),
    async (request, reply) => reply.code(202).send(await operations.retryFailed(request.params.id)),
  );
}
