import { describe, expect, test } from 'vitest';
import { type Reason, renderReason } from '../../src/reasons.ts';
import type { Asset, AssetState } from '../../src/store/database/schema.ts';
import type { KnownAsset, ListedAsset } from '../../src/store/syncs/write-assets.ts';
import { decide } from '../../src/sync/decide.ts';

/** A listed asset, with the fields of its row. */
function listing(change: Record<string, unknown> = {}): ListedAsset {
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

const unreadable: ListedAsset = { ...listing(), listed: {}, problem: 'size: expected number, received string' };

const unreadableListing: Reason = { code: 'unreadable_listing', problem: 'size: expected number, received string' };
const why: Reason = { code: 'error', text: 'why' };

function record(state: AssetState, more: Partial<Asset & KnownAsset> = {}): Asset & KnownAsset {
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

const media = { key: 'k', bytes: 7, variant: 'original', checksums: {}, etag: null, version: 'v' } as const;
const incremental = { full: false };
const full = { full: true };
const requested = { full: true, requested: true };

const reset = { state: 'pending', reason: null, reset: true, due: true };
const looked = (state: AssetState, due: boolean, reason: Reason | null = null) => ({
  state,
  reason,
  reset: false,
  due,
});

/** A sync of connection `c`, whose settings skip it. */
const skipped = { full: true, skipped: 'type videos', connectionId: 'c' };
const mine = { connectionId: 'c', media: null };
const aside = {
  state: 'pending',
  reason: { code: 'skipped_by_filter', rule: 'type videos' },
  skipped: 'type videos',
  reset: true,
  due: false,
};

const pictured = listing({ hasThumbnail: true });
const { listed } = pictured;

type Row = [string, KnownAsset | undefined, ListedAsset, Parameters<typeof decide>[2], object | undefined];

describe('what a listing makes of an asset', () => {
  test('depends on the code of its reason, and not on the words', () => {
    const becomes = (reason: Reason) => decide(record('mirrored', { reason }), listing(), incremental);
    expect(becomes({ code: 'unreadable_listing', problem: 'in other words' })).toEqual(looked('mirrored', false));
    expect(becomes({ code: 'error', text: renderReason(unreadableListing) })).toBeUndefined();
  });

  test.each<Row>([
    ['a new asset is to be mirrored', undefined, listing(), incremental, reset],
    [
      'a new one of an unknown status and type too',
      undefined,
      listing({ status: 'frozen', assetType: 'x' }),
      full,
      reset,
    ],
    [
      'a new one that cannot be read fails with the reason',
      undefined,
      unreadable,
      incremental,
      { state: 'failed', reason: unreadableListing, reset: true, due: false },
    ],

    ['mirrored and the same: nothing', record('mirrored'), listing(), incremental, undefined],
    ['mirrored and the same, in a full run: nothing', record('mirrored'), listing(), full, undefined],
    ['another size is another file', record('mirrored'), listing({ size: 8 }), incremental, reset],
    ['another upload date is another file', record('mirrored'), listing({ uploadDate: 1001 }), incremental, reset],
    [
      'a new name is news for the record only',
      record('mirrored'),
      listing({ name: 'x' }),
      incremental,
      looked('mirrored', true),
    ],
    ['an unknown field too', record('mirrored'), listing({ rating: 5 }), incremental, looked('mirrored', true)],
    [
      'a transcript that exists now is fetched',
      record('mirrored'),
      listing({ hasTranscript: true }),
      incremental,
      { ...looked('mirrored', true), transcriptState: 'pending' },
    ],
    [
      'one that is mirrored already is not',
      record('mirrored', { listed: listing({ hasTranscript: true }).listed, transcriptState: 'mirrored' }),
      listing({ hasTranscript: true }),
      full,
      undefined,
    ],
    [
      'one that was given up waits for a full run',
      record('mirrored', { listed: listing({ hasTranscript: true }).listed, transcriptState: 'gave_up' }),
      listing({ hasTranscript: true }),
      incremental,
      undefined,
    ],
    [
      'which looks again',
      record('mirrored', { listed: listing({ hasTranscript: true }).listed, transcriptState: 'gave_up' }),
      listing({ hasTranscript: true }),
      full,
      { ...looked('mirrored', true), transcriptState: 'pending' },
    ],
    [
      'as it does for a thumbnail',
      record('mirrored', { listed, thumbnailState: 'gave_up' }),
      pictured,
      full,
      { ...looked('mirrored', true), thumbnailState: 'pending' },
    ],
    [
      'one that was given up waits for that',
      record('mirrored', { listed, thumbnailState: 'gave_up' }),
      pictured,
      incremental,
      undefined,
    ],
    ['one that is there now is news', record('mirrored'), pictured, incremental, looked('mirrored', true)],
    [
      'one that is mirrored is not',
      record('mirrored', { listed, thumbnailState: 'mirrored' }),
      pictured,
      full,
      undefined,
    ],
    [
      'nor where none are kept',
      record('mirrored', { listed, thumbnailState: 'gave_up' }),
      pictured,
      { full: true, thumbnails: false },
      undefined,
    ],
    ['requested by an operator: from the start', record('mirrored'), listing(), requested, reset],

    ['unavailable and the same: nothing', record('unavailable'), listing(), incremental, undefined],
    ['unavailable and changed: again', record('unavailable'), listing({ status: 'x' }), incremental, reset],
    ['unavailable in a full run: again', record('unavailable'), listing(), full, reset],
    ['failed and the same: nothing', record('failed', { reason: why }), listing(), incremental, undefined],
    ['failed and changed: again', record('failed', { reason: why }), listing({ size: 8 }), incremental, reset],
    ['failed in a full run: again', record('failed', { reason: why }), listing(), full, reset],
    [
      'failed for it could not be read, and now can: again',
      record('failed', { listed: {} }),
      listing(),
      incremental,
      reset,
    ],

    ['gone and never mirrored: again', record('gone'), listing(), incremental, reset],
    [
      'gone and back, with its copy: a look',
      record('gone', { media, mirroredAt: new Date(2) }),
      listing(),
      incremental,
      { ...reset, state: 'mirrored' },
    ],
    ['gone and back, its record never written: again', record('gone', { media }), listing(), incremental, reset],
    ['gone and back as another file: again', record('gone', { media }), listing({ size: 8 }), incremental, reset],
    [
      'unreadable but known: keeps its state, and says so',
      record('mirrored'),
      unreadable,
      requested,
      looked('mirrored', false, unreadableListing),
    ],
    [
      'which is no news the second time',
      record('mirrored', { reason: unreadableListing }),
      unreadable,
      full,
      undefined,
    ],
    [
      'and over when it can be read again',
      record('mirrored', { reason: unreadableListing }),
      listing(),
      incremental,
      looked('mirrored', false),
    ],

    ['skipped and new: known as such', undefined, listing(), skipped, aside],
    ['skipped and unreadable: not recorded', undefined, unreadable, skipped, undefined],
    ['skipped and failed: no failure any more', record('failed', mine), listing(), skipped, aside],
    [
      'skipped and mirrored: stays as it is',
      record('mirrored', { ...mine, media }),
      listing({ size: 8 }),
      skipped,
      undefined,
    ],
    ['skipped and on its way: its worker decides', record('pending', mine), listing(), skipped, undefined],
    ['skipped and gone, and back', record('gone', mine), listing(), skipped, aside],
    ["skipped here, and another's", record('failed', { connectionId: 'd' }), listing(), skipped, undefined],
    [
      'skipped before and the same: nothing',
      record('pending', { ...mine, skipped: 'type videos' }),
      listing(),
      skipped,
      undefined,
    ],
    [
      'skipped before for another reason',
      record('pending', { ...mine, skipped: 'project p' }),
      listing(),
      skipped,
      aside,
    ],
    ['no longer skipped', record('pending', { ...mine, skipped: 'type videos' }), listing(), incremental, reset],
    [
      'skipped by another, and wanted here',
      record('pending', { connectionId: 'd', skipped: 'type videos' }),
      listing(),
      incremental,
      reset,
    ],
  ])('%s', (_, before, listed, options, decision) => {
    expect(decide(before, listed, options)).toEqual(decision);
  });

  test.each(['pending', 'processing', 'transferring'] as const)(
    '%s goes on; only a new status makes it due at once',
    (state) => {
      const before = record(state, { reason: why });
      expect(decide(before, listing(), full)).toBeUndefined();
      expect(decide(before, listing({ name: 'x' }), incremental)).toEqual(looked(state, false, why));
      expect(decide(before, listing({ status: 'processing' }), incremental)).toEqual(looked(state, true, why));
    },
  );
});

test.each(['pending', 'processing', 'mirrored', 'failed', 'unavailable'] as const)(
  'what is %s, unchanged and listed, while nobody can read the company of its record, is written with what it was',
  (state) => {
    const before = record(state, { reason: why, stranded: true });
    expect(decide(before, listing(), incremental)).toEqual(looked(state, false, why));
    expect(decide({ ...before, stranded: false }, listing(), incremental)).toBeUndefined();
  },
);
