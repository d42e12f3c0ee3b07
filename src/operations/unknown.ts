import { unknownTypes } from '../source/answers.ts';
import type { Store } from '../store/store.ts';

export interface Names {
  companyIds: string[];
  projectIds: string[];
  assetTypes: string[];
}

/** A type that the library's description does not name may come with an asset; these have come with none. */
export const strangeTypes = (store: Store, types: string[]): Promise<string[]> =>
  without(unknownTypes(types), (type) => store.assets.search({ type, limit: 1 }));

/** Of what a selection names, what nobody here has heard of: companies that the connection does not read, and what no asset is of. */
export async function strangers(store: Store, connectionId: string, names: Names): Promise<Names> {
  const read = (await store.connections.companies([connectionId])).map(({ id }) => id);
  const others = names.companyIds.filter((id) => !read.includes(id));
  return {
    companyIds: await without(others, (companyId) => store.assets.search({ companyId, limit: 1 })),
    projectIds: await without(names.projectIds, (projectId) => store.assets.search({ projectId, limit: 1 })),
    assetTypes: await strangeTypes(store, names.assetTypes),
  };
}

async function without(names: string[], find: (name: string) => Promise<unknown[]>): Promise<string[]> {
  const found: string[] = [];
  for (const name of new Set(names)) {
    if ((await find(name)).length === 0) found.push(name);
  }
  return found;
}
