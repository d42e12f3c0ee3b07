import formbody from '@fastify/formbody';
import { z } from 'zod';
import type { Operator } from '../../floor/roles.ts';
import { type FileKind, fileQuery } from '../../operations/assets/asset-files.ts';
import { assetList, assetQuery, facetList, facetQuery } from '../../operations/assets/asset-search.ts';
import { zipQuery, zipRequest } from '../../operations/assets/asset-zip.ts';
import { assetAnswer, assetSummary } from '../../operations/assets/assets.ts';
import { versionList } from '../../operations/assets/versions.ts';
import { idParams } from '../../operations/fields.ts';
import type { Operations } from '../../operations/operations.ts';
import type { Permissions } from '../../operations/operators/permissions.ts';
import { upcomingAnswer, upcomingQuery } from '../../operations/status/upcoming.ts';
import { refused } from '../openapi.ts';
import type { FileSender } from '../send-file.ts';
import { type Api, ofOne, routesOf, typed } from './route.ts';

const route = routesOf('assets');

export function assetRoutes(app: Api, operations: Operations, permissions: Permissions): void {
  /** A search for spoken words shows captions, so it needs the permission to read them. */
  function checkWords({ operator, query }: { operator?: Operator; query: { said?: string | undefined } }): void {
    if (query.said !== undefined) permissions.check(operator!, 'getCaptions');
  }

  app.get(
    '/assets',
    route('listAssets', 'List assets; all conditions must match', {
      querystring: assetQuery,
      response: { 200: assetList, ...refused(403, 404, 409) },
    }),
    async (request) => {
      checkWords(request);
      return operations.assets(request.query);
    },
  );
  app.get(
    '/asset-facets',
    route('countAssets', 'Count the matching assets, and the most frequent values of each facet', {
      querystring: facetQuery,
      response: { 200: facetList, ...refused(403, 404, 409) },
    }),
    async (request) => {
      checkWords(request);
      return operations.facets(request.query);
    },
  );
  app.get(
    '/assets/:id',
    route('getAsset', 'Get everything that the database has about an asset', ofOne(assetAnswer, 404)),
    async (request) => operations.asset(request.params.id),
  );
  app.get(
    '/assets/:id/versions',
    route('listVersions', 'List the superseded files of an asset that are kept, newest first', ofOne(versionList, 404)),
    async (request) => operations.versions(request.params.id),
  );
  app.post(
    '/assets/:id/retry',
    route('retryAsset', 'Retry an asset now, also a transcript or thumbnail that was given up', {
      params: idParams,
      response: { 202: assetSummary, ...refused(404, 409) },
    }),
    async (request, reply) => reply.code(202).send(await operations.retry(request.params.id)),
  );
  app.get(
    '/upcoming',
    route('listUpcoming', 'List the assets that are checked or retried within an hour, and when', {
      querystring: upcomingQuery,
      response: { 200: upcomingAnswer },
    }),
    async (request) => operations.upcoming(request.query),
  );
}

/** The routes that answer with files instead of JSON. */
export function assetFileRoutes(app: Api, sender: FileSender): void {
  app.get(
    '/asset-zip',
    route('getAssetZip', 'Get the media files of the matching assets as a ZIP archive, at most 1000', {
      querystring: zipQuery,
      response: archive,
    }),
    async (request, reply) => sender.sendZip(request.query, reply),
  );
  // Many ids do not fit into an address. A form of the dashboard sends them, too.
  app.register(async (plain) => {
    await plain.register(formbody);
    typed(plain).post(
      '/asset-zip',
      route('getAssetZipOf', 'Get the media files of these assets as a ZIP archive, at most 1000', {
        body: zipRequest,
        response: archive,
      }),
      async (request, reply) => sender.sendZip(request.body, reply),
    );
  });
  for (const [kind, operationId, summary] of files) {
    app.get(
      `/assets/:id/${kind}`,
      route(operationId, summary, {
        params: idParams,
        querystring: fileQuery,
        response: {
          200: file('The file'),
          206: file('The range of the file that was requested'),
          302: z.null().describe('Location: a link to the file in the store, valid for five minutes'),
          304: z.null().describe('The client has the file already'),
          ...refused(404, 409, 416),
        },
      }),
      async (request, reply) => sender.send({ id: request.params.id, kind, query: request.query }, request, reply),
    );
  }
}

const file = (description: string) => ({
  description,
  content: { 'application/octet-stream': { schema: z.any() } },
});
const archive = {
  200: { description: 'The archive', content: { 'application/zip': { schema: z.any() } } },
  ...refused(404, 409),
};

const files: [FileKind, string, string][] = [
  ['media', 'getMedia', 'Get the media file of an asset'],
  ['thumbnail', 'getThumbnail', 'Get the thumbnail of an asset'],
  ['captions', 'getCaptions', 'Get the captions of an asset (WebVTT)'],
  ['record', 'getRecord', 'Get the record of an asset (.asset.json)'],
];
