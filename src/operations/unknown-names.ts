import type { Choice } from '../filters/filters.ts';
import { unknownTypes } from '../source/schemas.ts';
import type { Store } from '../store/store.ts';

/** The types that neither the specification names nor any asset has. */
export const typesWithoutAssets = (store: Store, types: string[]): Promise<string[]> =>
  store.assets.ofNone('assetType', unknownTypes(types));

/** The unknown names in filters: companies that the connection cannot read, projects and types without assets. */
export async function unknownNames(store: Store, connectionId: string, names: Choice): Promise<Choice> {
  const read = new Set((await store.connections.companies([connectionId])).map(({ id }) => id));
  return {
    companyIds: [...new Set(names.companyIds)].filter((id) => !read.has(id)),
    projectIds: await store.assets.ofNone('projectId', names.projectIds),
    assetTypes: await typesWithoutAssets(store, names.assetTypes),
  };
}
