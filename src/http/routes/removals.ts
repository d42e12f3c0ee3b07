import type { Operations } from '../../operations/operations.ts';
import {
  certificateAnswer,
  erasureAnswer,
  erasureList,
  erasurePreview,
  erasureRequest,
  erasureScope,
} from '../../operations/removal/erasures.ts';
import {
  changedHolds,
  holdList,
  holdRequest,
  releaseRequest,
  removalsAnswer,
} from '../../operations/removal/removals.ts';
import { refused } from '../openapi.ts';
import { type Api, answering, ofOne, routesOf } from './route.ts';

const route = routesOf('removals');

export function removalRoutes(app: Api, operations: Operations): void {
  app.get(
    '/removals',
    route('listRemovals', 'List what is removed from the bucket in the next 7 days', answering(removalsAnswer)),
    async () => operations.removals(),
  );
  app.get(
    '/holds',
    route('listHolds', 'List what is protected from removal, newest first, up to 1,000', answering(holdList)),
    async () => operations.holds(),
  );
  app.post(
    '/holds',
    route('hold', 'Protect assets, projects or connections from removal', {
      body: holdRequest,
      response: { 200: changedHolds, ...refused(404, 409) },
    }),
    async (request) => operations.hold(request.body, request.operator!),
  );
  app.post(
    '/holds/release',
    route('release', 'End a protection from removal', {
      body: releaseRequest,
      response: { 200: changedHolds },
    }),
    async (request) => operations.release(request.body),
  );
  app.post(
    '/erasures/preview',
    route('previewErasure', 'Say what an erasure would remove; changes nothing', {
      body: erasureScope,
      response: { 200: erasurePreview, ...refused(404) },
    }),
    async (request) => operations.previewErasure(request.body),
  );
  app.post(
    '/erasures',
    route('erase', 'Erase assets for good, with their superseded files and history', {
      body: erasureRequest,
      response: { 202: erasureAnswer, ...refused(404) },
    }),
    async (request, reply) => reply.code(202).send(await operations.erase(request.body, request.operator!)),
  );
  app.get(
    '/erasures',
    route('listErasures', 'List erasures, newest first, up to 100', answering(erasureList)),
    async () => operations.erasures(),
  );
  app.get(
    '/erasures/:id',
    route('getErasure', 'Get the progress of an erasure', ofOne(erasureAnswer, 404)),
    async (request) => operations.erasure(request.params.id),
  );
  app.get(
    '/erasures/:id/certificate',
    route(
      'getErasureCertificate',
      'Get the certificate of an erasure: what it removed, and what remains',
      ofOne(certificateAnswer, 404),
    ),
    async (request) => operations.certificate(request.params.id),
  );
}
