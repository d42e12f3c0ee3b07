import type { Choice } from '../filters/filters.ts';
import { unknownTypes } from '../source/schemas.ts';
import type { Store } from '../store/store.ts';

/** A type that the library's description does not name may come with an asset; these have come with none. */
export const strangeTypes = (store: Store, types: string[]): Promise<string[]> =>
  store.assets.ofNone('assetType', unknownTypes(types));

/** Of what a filters names: companies that the connection does not read, and projects and types that no asset is of. */
export async function strangers(store: Store, connectionId: string, names: Choice): Promise<Choice> {
  const read = new Set((await store.connections.companies([connectionId])).map(({ id }) => id));
  return {
    companyIds: [...new Set(names.companyIds)].filter((id) => !read.has(id)),
    projectIds: await store.assets.ofNone('projectId', names.projectIds),
    assetTypes: await strangeTypes(store, names.assetTypes),
  };
}
