import { connectLink, connectLinkRequest } from '../../operations/connect-links.ts';
import { connectionSettingsRequest } from '../../operations/connection-settings.ts';
import {
  changedConnection,
  connectionAnswer,
  connectionList,
  connectionQuery,
  disconnectAnswer,
  retriedAnswer,
} from '../../operations/connections.ts';
import { idParams } from '../../operations/fields.ts';
import type { Operations } from '../../operations/operations.ts';
import type { Permissions } from '../../operations/permissions.ts';
import { projectList } from '../../operations/projects.ts';
import { acceptsChanges, resyncAnswer, resyncRequest } from '../../operations/syncs.ts';
import { refused } from '../openapi.ts';
import { type Api, route } from './route.ts';

export function connectionRoutes(app: Api, operations: Operations, permissions: Permissions): void {
  app.post(
    '/connect-links',
    route('connections', 'createConnectLink', 'Create a signed link with which a user connects or reconnects', {
      body: connectLinkRequest.nullish(),
      response: { 201: connectLink, ...refused(404) },
    }),
    async (request, reply) => reply.code(201).send(await operations.createConnectLink(request.body ?? {})),
  );
  app.get(
    '/connections',
    route('connections', 'listConnections', 'List connections, in the order in which they connected', {
      querystring: connectionQuery,
      response: { 200: connectionList },
    }),
    async (request) => operations.connections(request.query),
  );
  app.get(
    '/connections/:id',
    route('connections', 'getConnection', 'Get one connection', {
      params: idParams,
      response: { 200: connectionAnswer, ...refused(404) },
    }),
    async (request) => operations.connection(request.params.id),
  );
  app.patch(
    '/connections/:id',
    route('connections', 'changeConnection', 'Change the settings of a connection; they apply at once', {
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
    route('connections', 'listProjects', 'List the projects that a connection can read, with their current names', {
      params: idParams,
      response: { 200: projectList, ...refused(404, 409) },
    }),
    async (request) => operations.projects(request.params.id),
  );
  app.post(
    '/connections/:id/resync',
    route('connections', 'resyncConnection', 'Start an incremental, full or partial sync', {
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
    route('connections', 'pauseConnection', 'Stop all work for a connection until it is resumed', {
      params: idParams,
      response: { 200: connectionAnswer, ...refused(404, 409) },
    }),
    async (request) => operations.pause(request.params.id),
  );
  app.post(
    '/connections/:id/resume',
    route('connections', 'resumeConnection', 'Continue a paused connection', {
      params: idParams,
      response: { 200: connectionAnswer, ...refused(404, 409) },
    }),
    async (request) => operations.resume(request.params.id),
  );
  app.post(
    '/connections/:id/disconnect',
    route('connections', 'disconnectConnection', 'End a connection and revoke its grant; the bucket keeps its files', {
      params: idParams,
      response: { 200: disconnectAnswer, ...refused(404) },
    }),
    async (request) => operations.disconnect(request.params.id),
  );
  app.post(
    '/connections/:id/retry-failed',
    route('connections', 'retryFailedOfConnection', 'Retry all failed assets of a connection', {
      params: idParams,
      response: { 202: retriedAnswer, ...refused(404, 409) },
    }),
    async (request, reply) => reply.code(202).send(await operations.retryFailed(request.params.id)),
  );
}
