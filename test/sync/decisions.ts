import type { Reason } from '../../src/floor/reason-codes.ts';
import type { Asset, AssetState, ListedAsset } from '../../src/store/database/schema.ts';
import type { KnownAsset } from '../../src/store/syncs/write-assets.ts';
import type { decide } from '../../src/sync/decide.ts';

/** A listed asset, with the fields of its row. */
export function listing(change: Record<string, unknown> = {}): ListedAsset {
  const listed = {
    id: 'a',
    name: 'clip.mp4',
    mimeType: 'video/mp4',
    size: 7,
    uploadDate: 1000,
    status: 'ready',
    ...change,
  };
  return {
    id: 'a',
    projectId: null,
    assetType: null,
    name: 'clip.mp4',
    size: listed.size,
    uploadDate: listed.uploadDate,
    listed,
  };
}

/** The reason of an asset whose size cannot be read. */
export const unreadableListing: Reason = {
  code: 'unreadable_listing',
  problem: 'size: expected number, received string',
};

/** An asset that is listed like that. */
export const unreadable: ListedAsset = { ...listing(), listed: {}, problem: unreadableListing };

/** Any reason. */

/** A recorded asset in this state, listed before as above. */
export function record(state: AssetState, more: Partial<Asset & KnownAsset> = {}): Asset & KnownAsset {
  const { size, uploadDate, listed } = listing();
  return {
    id: 'a',
    state,
    size,
    uploadDate,
    listed,
    reason: null,
    media: null,
    mirroredAt: null,
    transcriptState: 'none',
    thumbnailState: 'none',
    stranded: false,
    ...more,
  } as Asset & KnownAsset;
}

/** A mirrored file. */
export const media = { key: 'k', bytes: 7, variant: 'original', checksums: {}, etag: null, version: 'v' } as const;

/** The options of an incremental sync. */
export const incremental = { full: false, transcripts: true, thumbnails: true };

/** The options of a full sync. */
export const full = { ...incremental, full: true };

/** The options of a sync of one named asset. */
export const requested = { ...full, requested: true };

/** The decision that an asset starts afresh. */
export const reset = { state: 'pending', reason: null, reset: true, due: true };

/** The decision that an asset keeps its state, and only its listing is recorded. */
export const looked = (state: AssetState, due: boolean, reason: Reason | null = null) => ({
  state,
  reason,
  reset: false,
  due,
});

/** A name, what is recorded, what is listed, the options of the sync, and the decision. */
export type Row = [string, KnownAsset | undefined, ListedAsset, Parameters<typeof decide>[2], object | undefined];
