import type { Choice } from '../filters/filters.ts';
import { assetTypes, unknownTypes } from '../source/schemas.ts';
import type { Store } from '../store/store.ts';

export interface NamesDeps {
  store: Store;
  /** The projects that a connection can read. @throws if the library does not answer */
  projects(connectionId: string): Promise<{ projects: { id: string; name: string }[] }>;
}

/** How many known names an error lists. */
const mostNamed = 30;

/**
 * Which of these names are probably typing errors: companies that the connection cannot read, projects that neither the
 * library lists nor any asset has, types that neither the specification nor any asset has. `text` names the known ones.
 */
export async function unknownNames(
  { store, projects }: NamesDeps,
  connectionId: string,
  names: Choice,
): Promise<{ unknown: Choice; text: string }> {
  const companies = await store.connections.companies([connectionId]);
  const companyIds = [...new Set(names.companyIds)].filter((name) => !companies.some(({ id }) => id === name));
  const types = await store.assets.ofNone('assetType', unknownTypes(names.assetTypes));
  let projectIds = await store.assets.ofNone('projectId', names.projectIds);
  const sentences = [
    ...companyIds.map((id) => `This connection cannot read a company ${id}. It reads ${listOf(companies)}.`),
    ...types.map((type) => `No asset has the type ${type}. The types are ${assetTypes.join(', ')}.`),
  ];
  if (projectIds.length > 0) {
    const listed = await projects(connectionId).catch(() => undefined);
    projectIds = projectIds.filter((name) => !listed?.projects.some(({ id }) => id === name));
    const known = listed
      ? `The projects are ${listOf(listed.projects)}.`
      : 'The library does not list its projects now.';
    sentences.push(...projectIds.map((id) => `No asset belongs to a project ${id}. ${known}`));
  }
  return { unknown: { companyIds, projectIds, assetTypes: types }, text: sentences.join(' ') };
}

/** `p1 (Spring), p2 (Summer)` */
function listOf(all: { id: string; name: string }[]): string {
  const named = all.slice(0, mostNamed).map(({ id, name }) => `${id} (${name})`);
  const more = all.length - named.length;
  return `${named.join(', ') || 'none'}${more > 0 ? ` and ${more} more` : ''}`;
}
