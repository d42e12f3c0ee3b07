import { describe, expect, test } from 'vitest';
import type { Reason } from '../../src/floor/reason-codes.ts';
import { renderReason } from '../../src/floor/reasons.ts';
import { decide } from '../../src/sync/decide.ts';
import { why } from '../support/reasons.ts';
import {
  full,
  incremental,
  listing,
  looked,
  media,
  type Row,
  record,
  requested,
  reset,
  unreadable,
  unreadableListing,
} from './decisions.ts';

const pictured = listing({ hasThumbnail: true });
const { listed } = pictured;

describe('the decision on a listed asset', () => {
  test('the decision on a listed asset depends on the code of its reason, not on the words', () => {
    const becomes = (reason: Reason) => decide(record('mirrored', { reason }), listing(), incremental);
    expect(becomes({ code: 'unreadable_listing', problem: 'in other words' })).toEqual(looked('mirrored', false));
    expect(becomes({ code: 'not_recorded', error: 'index row size' })).toEqual(looked('mirrored', false));
    expect(becomes({ code: 'error', text: renderReason(unreadableListing) })).toBeUndefined();
  });

  test.each<Row>([
    ['a new asset is mirrored', undefined, listing(), incremental, reset],
    [
      'a new asset of an unknown status and type is mirrored',
      undefined,
      listing({ status: 'frozen', assetType: 'x' }),
      full,
      reset,
    ],
    [
      'a new unreadable asset fails with the reason',
      undefined,
      unreadable,
      incremental,
      { state: 'failed', reason: unreadableListing, reset: true, due: false },
    ],

    ['a mirrored asset without changes stays as it is', record('mirrored'), listing(), incremental, undefined],
    ['a mirrored asset without changes stays as it is in a full sync', record('mirrored'), listing(), full, undefined],
    [
      'a mirrored asset with another size is mirrored again',
      record('mirrored'),
      listing({ size: 8 }),
      incremental,
      reset,
    ],
    [
      'a mirrored asset with another upload date is mirrored again',
      record('mirrored'),
      listing({ uploadDate: 1001 }),
      incremental,
      reset,
    ],
    [
      'a mirrored asset whose size was unknown while it was processed is not replaced',
      record('mirrored', {
        size: null,
        listed: { ...listed, size: null },
        media: { ...media, version: '7:1000' },
        mirroredAt: new Date(),
      }),
      listing(),
      full,
      looked('mirrored', true),
    ],
    [
      'a mirrored asset with a new name gets a new record only',
      record('mirrored'),
      listing({ name: 'x' }),
      incremental,
      looked('mirrored', true),
    ],
    [
      'a mirrored asset with a new unknown field gets a new record only',
      record('mirrored'),
      listing({ rating: 5 }),
      incremental,
      looked('mirrored', true),
    ],
    [
      'a new transcript is fetched',
      record('mirrored'),
      listing({ hasTranscript: true }),
      incremental,
      { ...looked('mirrored', true), transcriptState: 'pending' },
    ],
    [
      'a mirrored transcript is not fetched again',
      record('mirrored', { listed: listing({ hasTranscript: true }).listed, transcriptState: 'mirrored' }),
      listing({ hasTranscript: true }),
      full,
      undefined,
    ],
    [
      'a transcript that was given up is not tried by an incremental sync',
      record('mirrored', { listed: listing({ hasTranscript: true }).listed, transcriptState: 'gave_up' }),
      listing({ hasTranscript: true }),
      incremental,
      undefined,
    ],
    [
      'a transcript that was given up is tried again by a full sync',
      record('mirrored', { listed: listing({ hasTranscript: true }).listed, transcriptState: 'gave_up' }),
      listing({ hasTranscript: true }),
      full,
      { ...looked('mirrored', true), transcriptState: 'pending' },
    ],
    [
      'a thumbnail that was given up is tried again by a full sync',
      record('mirrored', { listed, thumbnailState: 'gave_up' }),
      pictured,
      full,
      { ...looked('mirrored', true), thumbnailState: 'pending' },
    ],
    [
      'a thumbnail that was given up is not tried by an incremental sync',
      record('mirrored', { listed, thumbnailState: 'gave_up' }),
      pictured,
      incremental,
      undefined,
    ],
    ['a new thumbnail is fetched', record('mirrored'), pictured, incremental, looked('mirrored', true)],
    [
      'a mirrored thumbnail is not fetched again',
      record('mirrored', { listed, thumbnailState: 'mirrored' }),
      pictured,
      full,
      undefined,
    ],
    [
      'a thumbnail is not fetched if thumbnails are switched off',
      record('mirrored', { listed, thumbnailState: 'gave_up' }),
      pictured,
      { ...full, thumbnails: false },
      undefined,
    ],
    ['an asset named by an operator starts afresh', record('mirrored'), listing(), requested, reset],

    ['an unavailable asset without changes stays as it is', record('unavailable'), listing(), incremental, undefined],
    ['a changed unavailable asset is tried again', record('unavailable'), listing({ status: 'x' }), incremental, reset],
    ['an unavailable asset is tried again by a full sync', record('unavailable'), listing(), full, reset],
    [
      'a failed asset without changes stays as it is',
      record('failed', { reason: why }),
      listing(),
      incremental,
      undefined,
    ],
    [
      'a changed failed asset is tried again',
      record('failed', { reason: why }),
      listing({ size: 8 }),
      incremental,
      reset,
    ],
    ['a failed asset is tried again by a full sync', record('failed', { reason: why }), listing(), full, reset],
    [
      'a failed asset that has become readable is tried again',
      record('failed', { listed: {} }),
      listing(),
      incremental,
      reset,
    ],

    [
      'an asset that was gone and never mirrored is mirrored when listed again',
      record('gone'),
      listing(),
      incremental,
      reset,
    ],
    [
      'an asset that was gone and has a copy is checked when listed again',
      record('gone', { media, mirroredAt: new Date(2) }),
      listing(),
      incremental,
      { ...reset, state: 'mirrored' },
    ],
    [
      'an asset that was gone and has no record is mirrored when listed again',
      record('gone', { media }),
      listing(),
      incremental,
      reset,
    ],
    [
      'an asset that was gone is mirrored when listed as another file',
      record('gone', { media }),
      listing({ size: 8 }),
      incremental,
      reset,
    ],
    [
      'a known asset whose listing is unreadable keeps its state and gets a reason',
      record('mirrored'),
      unreadable,
      requested,
      looked('mirrored', false, unreadableListing),
    ],
    [
      'an asset that was gone and has a copy is back, although its listing is unreadable',
      record('gone', { media, mirroredAt: new Date(2), reason: unreadableListing }),
      unreadable,
      full,
      { ...reset, state: 'mirrored', reason: unreadableListing },
    ],
    [
      'an asset that was gone without a copy is tried, although its listing is unreadable',
      record('gone'),
      unreadable,
      full,
      { ...reset, reason: unreadableListing },
    ],
    [
      'an asset whose listing is still unreadable stays as it is',
      record('mirrored', { reason: unreadableListing }),
      unreadable,
      full,
      undefined,
    ],
    [
      'an asset whose listing is readable again loses the reason',
      record('mirrored', { reason: unreadableListing }),
      listing(),
      incremental,
      looked('mirrored', false),
    ],

    [
      'a mirrored asset whose last follow-up check has failed is due at a full sync',
      record('mirrored', { media, reason: why }),
      listing(),
      full,
      looked('mirrored', true, why),
    ],
    [
      'a mirrored asset whose last follow-up check has failed is left alone by other syncs',
      record('mirrored', { media, reason: why }),
      listing(),
      incremental,
      undefined,
    ],
  ])('decision on a listed asset: %s', (_, before, listed, options, decision) => {
    expect(decide(before, listed, options)).toEqual(decision);
  });

  test.each(['pending', 'processing', 'transferring'] as const)(
    'a listed asset that is %s continues unchanged; only a new status makes it due at once',
    (state) => {
      const before = record(state, { reason: why });
      expect(decide(before, listing(), full)).toBeUndefined();
      expect(decide(before, listing({ name: 'x' }), incremental)).toEqual(looked(state, false, why));
      expect(decide(before, listing({ status: 'processing' }), incremental)).toEqual(looked(state, true, why));
    },
  );
});

test.each(['pending', 'processing', 'mirrored', 'failed', 'unavailable'] as const)(
  'a listed asset that is %s, unchanged and of an unreadable company, is recorded with its state',
  (state) => {
    const before = record(state, { reason: why, stranded: true });
    expect(decide(before, listing(), incremental)).toEqual(looked(state, false, why));
    expect(decide({ ...before, stranded: false }, listing(), incremental)).toBeUndefined();
  },
);
