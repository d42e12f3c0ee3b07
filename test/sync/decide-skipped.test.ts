import { describe, expect, test } from 'vitest';
import type { SkippedByFilter } from '../../src/floor/reason-codes.ts';
import { decide } from '../../src/sync/decide.ts';
import {
  full,
  incremental,
  listing,
  media,
  type Row,
  record,
  reset,
  unreadable,
  unreadableListing,
} from './decisions.ts';

const excluded = (value: string): SkippedByFilter => ({
  code: 'skipped_by_filter',
  list: 'exclude',
  field: 'type',
  value,
});
/** A sync of connection `c`, whose settings skip it. */
const skipped = { ...full, skipReason: excluded('videos'), connectionId: 'c' };
const mine = { connectionId: 'c', media: null };
const aside = {
  state: 'pending',
  reason: excluded('videos'),
  reset: true,
  due: false,
};

describe('the decision on a listed asset', () => {
  test.each<Row>([
    ['a new skipped asset is recorded as skipped', undefined, listing(), skipped, aside],
    ['a new skipped and unreadable asset is not recorded', undefined, unreadable, skipped, undefined],
    [
      'an asset that was gone and has a copy is back, although its listing is unreadable and skipped',
      record('gone', { ...mine, media, mirroredAt: new Date(2) }),
      unreadable,
      skipped,
      { ...reset, state: 'mirrored', reason: unreadableListing },
    ],
    ['a failed asset that the filters skip is no failure any more', record('failed', mine), listing(), skipped, aside],
    [
      'a mirrored asset that the filters skip stays as it is',
      record('mirrored', { ...mine, media }),
      listing({ size: 8 }),
      skipped,
      undefined,
    ],
    [
      'a pending asset that the filters skip is left to its worker',
      record('pending', mine),
      listing(),
      skipped,
      undefined,
    ],
    ['an asset that was gone is skipped when listed again', record('gone', mine), listing(), skipped, aside],
    [
      'an asset of another connection is not skipped by this one',
      record('failed', { connectionId: 'd' }),
      listing(),
      skipped,
      undefined,
    ],
    [
      'a skipped asset without changes stays as it is',
      record('pending', { ...mine, skipped: true, reason: excluded('videos') }),
      listing(),
      skipped,
      undefined,
    ],
    [
      'a skipped asset gets the new rule that skips it',
      record('pending', { ...mine, skipped: true, reason: excluded('audio') }),
      listing(),
      skipped,
      aside,
    ],
    [
      'a skipped asset that the filters no longer exclude is mirrored',
      record('pending', { ...mine, skipped: true, reason: excluded('videos') }),
      listing(),
      incremental,
      reset,
    ],
    [
      'an asset that another connection skips is mirrored by this one',
      record('pending', { connectionId: 'd', skipped: true, reason: excluded('videos') }),
      listing(),
      incremental,
      reset,
    ],
  ])('decision on a listed asset: %s', (_, before, listed, options, decision) => {
    expect(decide(before, listed, options)).toEqual(decision);
  });
});
