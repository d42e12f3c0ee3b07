import { createHash } from 'node:crypto';
import type { Selectable } from '../filters/filters.ts';
import type { AssetPage } from '../source/client.ts';
import { type ApiAsset, asset, storable, textOf, withoutLinks } from '../source/schemas.ts';
import { type ListedAsset, unreadablePrefix } from '../store/database/schema.ts';

/** The items of a page. The last entry of an asset counts, so the readable ones come last. */
export const listedOn = ({ assets, broken }: Pick<AssetPage, 'assets' | 'broken'>): ListedAsset[] => [
  ...broken.map(({ item, problem }) => brokenOf(item, problem)),
  ...assets.map(listedOf),
];

/** An asset of a page, in the form of the records. */
export function listedOf(item: ApiAsset): ListedAsset {
  // Exactly as the database will return it; otherwise every listing would see a change.
  const listed = storable(withoutLinks(item));
  // The link is signed and differs each time; only its presence is compared.
  if (item.thumbnailUrl) listed.hasThumbnail = true;
  return {
    id: item.id,
    projectId: storable(item.projectId ?? null),
    assetType: storable(item.assetType ?? null),
    name: storable(textOf(item.name) ?? null),
    size: item.size ?? null,
    uploadDate: item.uploadDate ?? null,
    listed,
  };
}

/** The fields that filters compare. Unknown fields of an unreadable asset are undefined: no rule applies to them. */
export function selectable(companyId: string, { projectId, assetType, problem }: ListedAsset): Selectable {
  if (problem === undefined) return { companyId, projectId, assetType };
  return { companyId, projectId: projectId ?? undefined, assetType: assetType ?? undefined };
}

/**
 * The readable fields of an item that breaks the schema. It is recorded under its id, or under a digest if the id is
 * unreadable, so that it is reported for as long as it is listed.
 */
function brokenOf(item: unknown, problem: string): ListedAsset {
  const given: Record<string, unknown> =
    item !== null && typeof item === 'object' ? withoutLinks(item as ApiAsset) : { item };
  const read = <K extends keyof typeof asset.shape>(key: K) =>
    asset.shape[key].safeParse(given[key]).data as ApiAsset[K] | undefined;
  const digest = () => createHash('sha256').update(JSON.stringify(given.id ?? given) ?? '');
  return {
    id: read('id') ?? `${unreadablePrefix}${digest().digest('hex').slice(0, 32)}`,
    projectId: storable(read('projectId') ?? null),
    assetType: storable(read('assetType') ?? null),
    name: storable(textOf(given.name) ?? null),
    size: null,
    uploadDate: read('uploadDate') ?? null,
    listed: {},
    problem: { code: 'unreadable_listing', problem: storable(problem) },
  };
}
