import { z } from 'zod';
import { changeList, changeQuery } from '../../operations/events/changes.ts';
import { eventList, eventQuery } from '../../operations/events/events.ts';
import type { Operations } from '../../operations/operations.ts';
import { historyAnswer, historyQuery } from '../../operations/status/throughput.ts';
import type { EventStreams } from '../event-stream.ts';
import { refused } from '../openapi.ts';
import { type Api, routesOf } from './route.ts';

const route = routesOf('events');

export function eventRoutes(app: Api, operations: Operations, streams: EventStreams): void {
  app.get(
    '/events',
    {
      // A stream never ends, so it has no HEAD.
      exposeHeadRoute: false,
      ...route('listEvents', 'List past events, or follow new ones', {
        description:
          'With `Accept: application/json` a page of events, newest first. Otherwise Server-Sent Events: each new event, ' +
          'with an id to resume from (`Last-Event-ID`), and `progress`: the status, whenever it has changed.',
        querystring: eventQuery,
        response: {
          200: {
            description: 'A page of events, or a stream of them',
            content: {
              'application/json': { schema: eventList },
              'text/event-stream': { schema: z.string() },
            },
          },
          ...refused(404),
        },
      }),
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
    route('getHistory', 'Get the number of assets mirrored and failed over time', {
      querystring: historyQuery,
      response: { 200: historyAnswer },
    }),
    async (request) => operations.history(request.query),
  );
  app.get(
    '/changes',
    route('listChanges', 'List changes of the copy, in order and without gaps', {
      querystring: changeQuery,
      response: { 200: changeList, ...refused(410) },
    }),
    async (request) => operations.changes(request.query),
  );
}
