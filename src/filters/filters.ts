/** Decides which of the assets that a connection can read are mirrored. Pure. */

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
  { list: 'companyIds', field: 'companyId', word: 'company' },
  { list: 'projectIds', field: 'projectId', word: 'project' },
  { list: 'assetTypes', field: 'assetType', word: 'type' },
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
 * The rule that skips an asset, as a code such as `exclude type videos`; null: it is mirrored. An asset in any list of `exclude`
 * is skipped. Otherwise it must be in each list of `include` that is not empty.
 */
export function skippingRule({ include, exclude }: Filters, asset: Selectable): string | null {
  for (const { list, field, word } of dimensions) {
    const value = asset[field];
    if (value != null && exclude[list].includes(value)) return `exclude ${word} ${value}`;
  }
  for (const { list, field, word } of dimensions) {
    const value = asset[field];
    if (value === undefined || include[list].length === 0) continue;
    if (value === null) return `include ${word}`;
    if (!include[list].includes(value)) return `include ${word} ${value}`;
  }
  return null;
}

/** Whether all assets of a company are skipped, so that it need not be listed. */
export function skipsCompany(filters: Filters, companyId: string): boolean {
  const { include, exclude } = filters;
  const only = (choice: Choice): Choice => ({ ...nothing, companyIds: choice.companyIds });
  const companies = { include: only(include), exclude: only(exclude) };
  return skippingRule(companies, { companyId, projectId: undefined, assetType: undefined }) !== null;
}

/** Whether `after` may include assets that `before` skipped. */
export function isWider(before: Filters, after: Filters): boolean {
  const within = (some: string[], all: string[]) => some.every((value) => all.includes(value));
  return dimensions.some(({ list }) => {
    const [included, includes] = [before.include[list], after.include[list]];
    const narrower = included.length === 0 || (includes.length > 0 && within(includes, included));
    return !narrower || !within(before.exclude[list], after.exclude[list]);
  });
}
