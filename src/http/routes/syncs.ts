import { planLine, planQuery } from '../../operations/connections/full-sync-plan.ts';
import { syncAnswer, syncList, syncQuery } from '../../operations/connections/syncs.ts';
import type { Operations } from '../../operations/operations.ts';
import { refused } from '../openapi.ts';
import { streamWork } from '../stream-progress.ts';
import { type Api, ofOne, routesOf } from './route.ts';

const route = routesOf('syncs');

export function syncRoutes(app: Api, operations: Operations): void {
  const stopping = new AbortController();
  app.addHook('preClose', async () => stopping.abort(new Error('asset-mirror is stopping')));

  app.get(
    '/syncs',
    route('listSyncs', 'List syncs, newest first', {
      querystring: syncQuery,
      response: { 200: syncList, ...refused(404) },
    }),
    async (request) => operations.syncs(request.query),
  );
  app.get('/syncs/:id', route('getSync', 'Get one sync', ofOne(syncAnswer, 404)), async (request) =>
    operations.sync(request.params.id),
  );
  app.get(
    '/plan',
    {
      exposeHeadRoute: false,
      ...route('plan', 'List the library and say what a full sync would transfer', {
        description:
          'Listing takes a while, so the answer comes as lines of JSON: `progress` at intervals, and finally `result` or ' +
          '`error`. Nothing is written. Cancel the request to stop it.',
        querystring: planQuery,
        response: {
          200: { description: 'Lines of JSON', content: { 'application/x-ndjson': { schema: planLine } } },
          ...refused(404, 409),
        },
      }),
    },
    async (request, reply) => streamWork(reply, stopping.signal, await operations.plan(request.query)),
  );
}
