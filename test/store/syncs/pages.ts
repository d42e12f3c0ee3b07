import type { ListedAsset } from '../../../src/store/database/schema.ts';
import type { Store } from '../../../src/store/store.ts';
import type { Decide } from '../../../src/store/syncs/write-assets.ts';
import type { running } from '../records.ts';

/** The decision that an asset is pending. */
export const pending = { state: 'pending', reason: null, reset: true, due: true } as const;

/** New assets are pending, and every change is one of the name. */
export const decide: Decide = (before, asset) =>
  before === undefined || before.name !== asset.name ? pending : undefined;

/** A connection with a leased sync. */
export type Run = Awaited<ReturnType<typeof running>>;

/** Records pages of a running sync of this store. */
export const recorder =
  (store: Store) =>
  (
    run: Run,
    companyId: string,
    assets: ListedAsset[],
    more: { highWaterMark?: number | null; sighted?: string[] } = {},
  ) =>
    store.syncs.recordPage({ ...run, companyId, assets, decide, position: { cursor: 'next' }, ...more });

/** Ids with this prefix, numbered. */
export const ids = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
