import type { Choice } from '../../filters/filters.ts';
import { assetTypes, unknownTypes } from '../../source/schemas.ts';
import type { Store } from '../../store/store.ts';
import { Refused, type WrongField } from '../refused.ts';

export interface NamesDeps {
  store: Store;
  /** The projects that a connection can read. @throws if the library does not answer */
  projects(connectionId: string): Promise<{ projects: Named[] }>;
}

interface Named {
  id: string;
  name: string;
}

/** Names in one field of a request. */
export interface NamedField {
  field: string;
  list: keyof Choice;
  values: string[];
}

export type UnknownName = WrongField & { list: keyof Choice; value: string };

/** How many known names an error lists. */
const mostKnown = 30;

/**
 * Names that are probably typing errors: companies that the connection cannot read, projects that neither the library
 * lists nor any asset has, types that neither the specification nor any asset has.
 */
export async function unknownNames(
  { store, projects }: NamesDeps,
  connectionId: string,
  fields: NamedField[],
): Promise<UnknownName[]> {
  const named = (list: keyof Choice) => fields.flatMap((field) => (field.list === list ? field.values : []));
  const companies = await store.connections.companies([connectionId]);
  const types = await store.assets.namesOfNoAsset('assetType', unknownTypes(named('assetTypes')));
  const ofNoAsset = await store.assets.namesOfNoAsset('projectId', named('projectIds'));
  const listed = ofNoAsset.length > 0 ? await projects(connectionId).catch(() => undefined) : undefined;
  const isUnknown = {
    companyIds: (value: string) => !companies.some(({ id }) => id === value),
    projectIds: (value: string) => ofNoAsset.includes(value) && !listed?.projects.some(({ id }) => id === value),
    assetTypes: (value: string) => types.includes(value),
  };
  const known = {
    companyIds: companies.map(({ id, name }) => ({ id, name })),
    projectIds: listed?.projects.map(({ id, name }) => ({ id, name })),
    assetTypes: assetTypes.map((type) => ({ id: type, name: type })),
  };
  return fields.flatMap(({ field, list, values }) =>
    [...new Set(values)].filter(isUnknown[list]).map((value) => ({
      field,
      list,
      value,
      detail: sentences[list](value, known[list] && listOf(known[list])),
      ...(known[list] && { known: known[list].slice(0, mostKnown) }),
    })),
  );
}

/** The refusal of a request with unknown names; `remedy`: what else can be done. */
export function unknownNamesRefused(unknown: UnknownName[], remedy = ''): Refused {
  const details = unknown.map(({ detail }) => detail).join(' ');
  const errors = unknown.map(({ list: _, ...wrong }) => wrong);
  return new Refused(400, 'unknown_name', `${details} ${remedy}`.trimEnd(), errors);
}

const sentences: Record<keyof Choice, (value: string, known: string | undefined) => string> = {
  companyIds: (id, known) => `This connection cannot read a company ${id}. It reads ${known}.`,
  projectIds: (id, known) =>
    `No asset belongs to a project ${id}. ${known ? `The projects are ${known}.` : 'The library does not list its projects now.'}`,
  assetTypes: (type, known) => `No asset has the type ${type}. The types are ${known}.`,
};

/** `p1 (Spring), p2 (Summer)` */
function listOf(all: Named[]): string {
  const named = all.slice(0, mostKnown).map(({ id, name }) => (name === id ? id : `${id} (${name})`));
  const more = all.length - named.length;
  return `${named.join(', ') || 'none'}${more > 0 ? ` and ${more} more` : ''}`;
}
