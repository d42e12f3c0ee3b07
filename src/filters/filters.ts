/** Decides which of the assets that a connection can read are mirrored. Pure. */

import type { SkippedByFilter } from '../floor/reason-codes.ts';

/** Ids and types, as the library names them. An empty list does not restrict anything. */
export interface Choice {
  companyIds: string[];
  projectIds: string[];
  assetTypes: string[];
}
export interface Filters {
  include: Choice;
  exclude: Choice;
}

/** INCLUDE_ASSET_TYPES and EXCLUDE_ASSET_TYPES. */
export interface FilterDefaults {
  includeTypes: string[];
  excludeTypes: string[];
}

/** The fields that filters compare. Undefined: unreadable, so no rule applies. */
export interface Selectable {
  companyId: string;
  projectId: string | null | undefined;
  assetType: string | null | undefined;
}

const nothing: Choice = { companyIds: [], projectIds: [], assetTypes: [] };

const dimensions = [
  { list: 'companyIds', key: 'companyId', field: 'company' },
  { list: 'projectIds', key: 'projectId', field: 'project' },
  { list: 'assetTypes', key: 'assetType', field: 'type' },
] as const;

/** A connection's own lists. For each list that it does not set, that of the environment. */
export function filtersOf(settings: Record<string, unknown>, defaults: FilterDefaults): Filters {
  const own = (of: unknown): Partial<Choice> => (of !== null && typeof of === 'object' ? of : {});
  return {
    include: { ...nothing, assetTypes: defaults.includeTypes, ...own(settings.include) },
    exclude: { ...nothing, assetTypes: defaults.excludeTypes, ...own(settings.exclude) },
  };
}

/**
 * Why the filters skip an asset; null: it is mirrored. An asset in any list of `exclude` is skipped. Otherwise it must be in
 * each list of `include` that is not empty.
 */
export function skippedBy({ include, exclude }: Filters, asset: Selectable): SkippedByFilter | null {
  const code = 'skipped_by_filter';
  for (const { list, key, field } of dimensions) {
    const value = asset[key];
    if (value != null && exclude[list].includes(value)) return { code, list: 'exclude', field, value };
  }
  for (const { list, key, field } of dimensions) {
    const value = asset[key];
    if (value === undefined || include[list].length === 0) continue;
    if (value === null || !include[list].includes(value)) return { code, list: 'include', field, value };
  }
  return null;
}

/** Whether all assets of a company are skipped, so that it need not be listed. */
export function skipsCompany(filters: Filters, companyId: string): boolean {
  const { include, exclude } = filters;
  const only = (choice: Choice): Choice => ({ ...nothing, companyIds: choice.companyIds });
  const companies = { include: only(include), exclude: only(exclude) };
  return skippedBy(companies, { companyId, projectId: undefined, assetType: undefined }) !== null;
}

/** Whether `after` may include assets that `before` skipped. */
export function isWider(before: Filters, after: Filters): boolean {
  const within = (some: string[], all: string[]) => some.every((value) => all.includes(value));
  return dimensions.some(({ list }) => {
    const [was, is] = [before.include[list], after.include[list]];
    const isSameOrNarrower = was.length === 0 || (is.length > 0 && within(is, was));
    return !isSameOrNarrower || !within(before.exclude[list], after.exclude[list]);
  });
}
