import { createHash } from 'node:crypto';
import { type ApiAsset, asset, storable, withoutLinks } from '../source/answers.ts';
import type { ListedAsset } from '../store/listing.ts';

/** An asset of a page as the records take it. */
export function listedOf(item: ApiAsset): ListedAsset {
  // Exactly as it will be read from the records: else it would be news for ever.
  const listed = storable(withoutLinks(item));
  // The link is signed, and another each time; that there is one is news.
  if (item.thumbnailUrl) listed.hasThumbnail = true;
  return {
    id: item.id,
    projectId: storable(item.projectId ?? null),
    assetType: storable(item.assetType ?? null),
    name: storable(item.name ?? null),
    size: item.size ?? null,
    uploadDate: item.uploadDate ?? null,
    listed,
  };
}

/** Begins the key of a record of an item whose id cannot be one. */
export const unreadable = 'unreadable:';

/**
 * An item that breaks the schema, as far as it can be read. It has a record too, so that it is told of for as long as it
 * is listed: under its id, or when that cannot be read under a digest.
 */
export function brokenOf(item: unknown, problem: string): ListedAsset {
  const given: Record<string, unknown> =
    item !== null && typeof item === 'object' ? withoutLinks(item as ApiAsset) : { item };
  const read = <K extends keyof typeof asset.shape>(key: K) =>
    asset.shape[key].safeParse(given[key]).data as ApiAsset[K] | undefined;
  const digest = () => createHash('sha256').update(JSON.stringify(given.id ?? given) ?? '');
  return {
    id: read('id') ?? `${unreadable}${digest().digest('hex').slice(0, 32)}`,
    projectId: storable(read('projectId') ?? null),
    assetType: storable(read('assetType') ?? null),
    name: storable(read('name') ?? null),
    size: null,
    uploadDate: read('uploadDate') ?? null,
    listed: {},
    problem: storable(problem),
  };
}
