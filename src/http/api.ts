import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { assetAnswer, assetList, assetQuery } from '../operations/assets.ts';
import { connectionSettingsRequest } from '../operations/connection-settings.ts';
import {
  changedConnection,
  connectionAnswer,
  connectionList,
  connectionQuery,
  connectLink,
  connectLinkRequest,
  disconnectAnswer,
  retriedAnswer,
} from '../operations/connections.ts';
import { eventList, eventQuery } from '../operations/events.ts';
import { idParams } from '../operations/fields.ts';
import { rotatedKeysAnswer } from '../operations/keys.ts';
import type { Operations } from '../operations/operations.ts';
import { planLine, planQuery } from '../operations/plan.ts';
import { projectList } from '../operations/projects.ts';
import { settingsAnswer, settingsRequest } from '../operations/settings.ts';
import { statusAnswer } from '../operations/status.ts';
import { resyncAnswer, resyncRequest, syncAnswer, syncList, syncQuery } from '../operations/syncs.ts';
import { historyAnswer, historyQuery } from '../operations/throughput.ts';
import { upcomingAnswer, upcomingQuery } from '../operations/upcoming.ts';
import { linesQuery, verificationAnswer, verifyAnswer, verifyRequest } from '../operations/verifications.ts';
import type { createEventStreams } from './event-stream.ts';
import { refusals } from './openapi.ts';
import { streamWork } from './stream-progress.ts';

/** A route's words, as they are in /openapi.json. `operationId` also names what an operator did in the events. */
const route = (tag: string, operationId: string, summary: string) => ({ tags: [tag], operationId, summary });

/** The operator API: each route is one call of an operation. */
export function apiRoutes(
  plain: FastifyInstance,
  operations: Operations,
  streams: ReturnType<typeof createEventStreams>,
): void {
  const app = plain.withTypeProvider<ZodTypeProvider>();
  const stopping = new AbortController();
  app.addHook('preClose', async () => stopping.abort(new Error('the service is stopping')));

  app.post(
    '/connect-links',
    {
      schema: {
        ...route('connections', 'createConnectLink', 'A signed link for a user to connect, or to reconnect'),
        body: connectLinkRequest.nullish(),
        response: { 201: connectLink, ...refusals },
      },
    },
    async (request, reply) => reply.code(201).send(await operations.createConnectLink(request.body ?? {})),
  );
  app.get(
    '/status',
    {
      schema: {
        ...route('service', 'getStatus', 'Totals, rates, queue depths, time left'),
        response: { 200: statusAnswer, ...refusals },
      },
    },
    async () => operations.status(),
  );
  app.get(
    '/connections',
    {
      schema: {
        ...route('connections', 'listConnections', 'Connections, in the order in which they connected'),
        querystring: connectionQuery,
        response: { 200: connectionList, ...refusals },
      },
    },
    async (request) => operations.connections(request.query),
  );
  app.get(
    '/connections/:id',
    {
      schema: {
        ...route('connections', 'getConnection', 'One connection'),
        params: idParams,
        response: { 200: connectionAnswer, ...refusals },
      },
    },
    async (request) => operations.connection(request.params.id),
  );
  app.patch(
    '/connections/:id',
    {
      schema: {
        ...route('connections', 'changeConnection', 'Change its settings, at once'),
        params: idParams,
        body: connectionSettingsRequest,
        response: { 200: changedConnection, ...refusals },
      },
    },
    async (request) => operations.changeConnection(request.params.id, request.body),
  );
  app.get(
    '/connections/:id/projects',
    {
      schema: {
        ...route('connections', 'listProjects', 'The projects that it can read, as the library names them now'),
        params: idParams,
        response: { 200: projectList, ...refusals },
      },
    },
    async (request) => operations.projects(request.params.id),
  );
  app.post(
    '/connections/:id/resync',
    {
      schema: {
        ...route('connections', 'resyncConnection', 'Sync now: what is new, or everything, or a part'),
        params: idParams,
        body: resyncRequest,
        response: { 202: resyncAnswer, ...refusals },
      },
    },
    async (request, reply) => reply.code(202).send(await operations.resync(request.params.id, request.body)),
  );
  app.post(
    '/connections/:id/pause',
    {
      schema: {
        ...route('connections', 'pauseConnection', 'Do nothing more for it until it is resumed'),
        params: idParams,
        response: { 200: connectionAnswer, ...refusals },
      },
    },
    async (request) => operations.pause(request.params.id),
  );
  app.post(
    '/connections/:id/resume',
    {
      schema: {
        ...route('connections', 'resumeConnection', 'Go on where it was paused'),
        params: idParams,
        response: { 200: connectionAnswer, ...refusals },
      },
    },
    async (request) => operations.resume(request.params.id),
  );
  app.post(
    '/connections/:id/disconnect',
    {
      schema: {
        ...route(
          'connections',
          'disconnectConnection',
          'End it, here and at the service; the bucket keeps what it has',
        ),
        params: idParams,
        response: { 200: disconnectAnswer, ...refusals },
      },
    },
    async (request) => operations.disconnect(request.params.id),
  );
  app.post(
    '/connections/:id/retry-failed',
    {
      schema: {
        ...route('connections', 'retryFailedOfConnection', 'Try everything that has failed of it again'),
        params: idParams,
        response: { 202: retriedAnswer, ...refusals },
      },
    },
    async (request, reply) => reply.code(202).send(await operations.retryFailed(request.params.id)),
  );
  app.get(
    '/assets',
    {
      schema: {
        ...route('assets', 'listAssets', 'Assets by id, filtered'),
        querystring: assetQuery,
        response: { 200: assetList, ...refusals },
      },
    },
    async (request) => operations.assets(request.query),
  );
  app.get(
    '/assets/:id',
    {
      schema: {
        ...route('assets', 'getAsset', 'Everything that the records know of an asset'),
        params: idParams,
        response: { 200: assetAnswer, ...refusals },
      },
    },
    async (request) => operations.asset(request.params.id),
  );
  app.post(
    '/assets/:id/retry',
    {
      schema: {
        ...route('assets', 'retryAsset', 'Try it again now, with what was given up of it'),
        params: idParams,
        response: { 202: assetAnswer, ...refusals },
      },
    },
    async (request, reply) => reply.code(202).send(await operations.retry(request.params.id)),
  );
  app.get(
    '/syncs',
    {
      schema: {
        ...route('syncs', 'listSyncs', 'Runs, the newest first'),
        querystring: syncQuery,
        response: { 200: syncList, ...refusals },
      },
    },
    async (request) => operations.syncs(request.query),
  );
  app.get(
    '/syncs/:id',
    {
      schema: {
        ...route('syncs', 'getSync', 'One run'),
        params: idParams,
        response: { 200: syncAnswer, ...refusals },
      },
    },
    async (request) => operations.sync(request.params.id),
  );
  app.get(
    '/events',
    {
      // A stream has no end, and so no head of its own.
      exposeHeadRoute: false,
      schema: {
        ...route('events', 'listEvents', 'What happened: as it happens, or back in time'),
        description:
          'With `Accept: application/json` a page of events, the newest first. Otherwise Server-Sent Events: each event as ' +
          'it happens, with an id from which `Last-Event-ID` goes on; and `progress`, the status whenever it has changed.',
        querystring: eventQuery,
        response: {
          200: {
            description: 'A page of events, or a stream of them',
            content: {
              'application/json': { schema: eventList },
              'text/event-stream': { schema: z.string() },
            },
          },
          ...refusals,
        },
      },
    },
    async (request, reply) => {
      const { accept = '' } = request.headers;
      const json = accept.includes('application/json') && !accept.includes('text/event-stream');
      if (!json) return streams.open(request, reply, request.query);
      return reply.type('application/json').send(await operations.events(request.query));
    },
  );
  app.get(
    '/history',
    {
      schema: {
        ...route('events', 'getHistory', 'What was mirrored and what failed, by time'),
        querystring: historyQuery,
        response: { 200: historyAnswer, ...refusals },
      },
    },
    async (request) => operations.history(request.query),
  );
  app.get(
    '/upcoming',
    {
      schema: {
        ...route('assets', 'listUpcoming', 'What is looked at again soon, and when'),
        querystring: upcomingQuery,
        response: { 200: upcomingAnswer, ...refusals },
      },
    },
    async (request) => operations.upcoming(request.query),
  );
  app.post(
    '/verify',
    {
      schema: {
        ...route('verification', 'verify', 'Compare library, records and bucket'),
        body: verifyRequest.nullish(),
        response: { 202: verifyAnswer, ...refusals },
      },
    },
    async (request, reply) => reply.code(202).send(await operations.verify(request.body ?? {})),
  );
  app.get(
    '/verify/:id',
    {
      schema: {
        ...route('verification', 'getVerification', 'How far it is, and what it has found'),
        params: idParams,
        querystring: linesQuery,
        response: { 200: verificationAnswer, ...refusals },
      },
    },
    async (request) => operations.verification(request.params.id, request.query),
  );
  app.post(
    '/keys/rotate',
    {
      schema: {
        ...route('service', 'rotateKeys', 'Seal all tokens again, with the first of ENCRYPTION_KEYS'),
        response: { 200: rotatedKeysAnswer, ...refusals },
      },
    },
    async () => operations.rotateKeys(),
  );
  app.get(
    '/settings',
    {
      schema: {
        ...route('service', 'getSettings', 'What each process keeps to'),
        response: { 200: settingsAnswer, ...refusals },
      },
    },
    async () => operations.settings(),
  );
  app.patch(
    '/settings',
    {
      schema: {
        ...route('service', 'changeSettings', 'Change what each process keeps to, at once'),
        body: settingsRequest,
        response: { 200: settingsAnswer, ...refusals },
      },
    },
    async (request) => operations.changeSettings(request.body),
  );
  app.get(
    '/plan',
    {
      exposeHeadRoute: false,
      schema: {
        ...route('syncs', 'plan', 'What a full sync would move, before it moves'),
        description:
          'Lists the library, which takes its time, and answers with a line of JSON now and then: `progress`, and last ' +
          '`result` or `error`. Nothing is written. Closing the connection ends it.',
        querystring: planQuery,
        response: {
          200: { description: 'Lines of JSON', content: { 'application/x-ndjson': { schema: planLine } } },
          ...refusals,
        },
      },
    },
    async (request, reply) => streamWork(reply, stopping.signal, await operations.plan(request.query)),
  );
}
