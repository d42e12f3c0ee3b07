import { changeList, changeQuery } from '../../operations/changes.ts';
import type { Operations } from '../../operations/operations.ts';
import { refused } from '../openapi.ts';
import { type Api, route } from './route.ts';

export function changeRoutes(app: Api, operations: Operations): void {
  app.get(
    '/changes',
    route('events', 'listChanges', 'List changes of the copy, in order and without gaps', {
      querystring: changeQuery,
      response: { 200: changeList, ...refused(410) },
    }),
    async (request) => operations.changes(request.query),
  );
}
