import type { SkippedByFilter } from '../floor/reason-codes.ts';
import type { Store } from '../store/store.ts';
import { type FilterDefaults, filtersOf, type Selectable, skippedBy } from './filters.ts';

/**
 * Why a filter skips a due asset now, and another connection that wants it, if there is one. Undefined if the asset is not
 * skipped, or has a file in the bucket: such assets stay complete.
 */
export async function whyDueAssetIsSkipped(
  { store, filters: defaults }: { store: Store; filters: FilterDefaults },
  asset: Selectable & { connectionId: string; media: object | null; settings: Record<string, unknown> },
): Promise<{ reason: SkippedByFilter; otherConnectionId: string | undefined } | undefined> {
  if (asset.media !== null) return undefined;
  const reason = skippedBy(filtersOf(asset.settings, defaults), asset);
  if (reason === null) return undefined;
  const readers = await store.filters.readers(asset.companyId);
  const other = readers.find(
    ({ id, settings }) => id !== asset.connectionId && skippedBy(filtersOf(settings, defaults), asset) === null,
  );
  return { reason, otherConnectionId: other?.id };
}
