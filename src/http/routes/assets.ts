import { assetAnswer, assetList, assetQuery, assetSummary } from '../../operations/assets.ts';
import { idParams } from '../../operations/fields.ts';
import type { Operations } from '../../operations/operations.ts';
import { upcomingAnswer, upcomingQuery } from '../../operations/upcoming.ts';
import { versionList } from '../../operations/versions.ts';
import { refused } from '../openapi.ts';
import { type Api, route } from './route.ts';

export function assetRoutes(app: Api, operations: Operations): void {
  app.get(
    '/assets',
    route('assets', 'listAssets', 'List assets by id; all conditions must match', {
      querystring: assetQuery,
      response: { 200: assetList, ...refused(404) },
    }),
    async (request) => operations.assets(request.query),
  );
  app.get(
    '/assets/:id',
    route('assets', 'getAsset', 'Get everything that the database has about an asset', {
      params: idParams,
      response: { 200: assetAnswer, ...refused(404) },
    }),
    async (request) => operations.asset(request.params.id),
  );
  app.get(
    '/assets/:id/versions',
    route('assets', 'listVersions', 'List the superseded files of an asset that are kept, newest first', {
      params: idParams,
      response: { 200: versionList, ...refused(404) },
    }),
    async (request) => operations.versions(request.params.id),
  );
  app.post(
    '/assets/:id/retry',
    route('assets', 'retryAsset', 'Retry an asset now, with a transcript or thumbnail that was given up', {
      params: idParams,
      response: { 202: assetSummary, ...refused(404, 409) },
    }),
    async (request, reply) => reply.code(202).send(await operations.retry(request.params.id)),
  );
  app.get(
    '/upcoming',
    route('assets', 'listUpcoming', 'List the assets that are checked or retried soon, and when', {
      querystring: upcomingQuery,
      response: { 200: upcomingAnswer },
    }),
    async (request) => operations.upcoming(request.query),
  );
}
