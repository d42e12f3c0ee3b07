import { z } from 'zod';
import { reasonOf } from '../../floor/errors.ts';
import { answerWithin } from '../../floor/within.ts';
import type { OperationsDeps } from '../deps.ts';
import { Refused } from '../refused.ts';
import { activeConnection } from './connections.ts';

export const projectList = z
  .object({
    projects: z
      .array(z.object({ id: z.string(), name: z.string(), companyId: z.string() }))
      .describe('By company, then by name.'),
  })
  .meta({ id: 'ProjectList' });

const patienceMs = 10_000;

const byName = new Intl.Collator('en', { numeric: true });

export function projectOperations({
  store,
  client,
  withToken,
}: Pick<OperationsDeps, 'store' | 'client' | 'withToken'>) {
  return {
    /** The projects that a connection can read, from the library: the database has only their ids. */
    async projects(connectionId: string) {
      await activeConnection(store, connectionId);
      const companies = await store.connections.companies([connectionId]);
      try {
        const lists = await answerWithin(patienceMs, (signal) =>
          Promise.all(
            companies.map(async ({ id: companyId }) => {
              const list = (token: string) => client.listProjects({ token, signal, companyId });
              const projects = await withToken(connectionId, list);
              return projects
                .sort((a, b) => byName.compare(a.name, b.name))
                .map(({ id, name }) => ({ id, name, companyId }));
            }),
          ),
        );
        return { projects: lists.flat() };
      } catch (error) {
        throw new Refused(
          503,
          'library_not_available',
          `The library does not list its projects now: ${reasonOf(error)}. Try again later, or use the id of the project.`,
        );
      }
    },
  };
}
