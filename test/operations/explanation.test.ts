import { describe, expect, test } from 'vitest';
import type { Reason } from '../../src/floor/reason-codes.ts';
import { type Circumstances, explanationOf } from '../../src/operations/assets/explanation.ts';
import type { Asset, Connection } from '../../src/store/database/schema.ts';

const now = new Date('2026-03-01T12:00:00Z');
const later = new Date('2026-03-01T12:10:00Z');
const connection = { id: 'c', status: 'active', delayedUntil: null, delayedReason: null } as Connection;
const circumstances: Circumstances = {
  now,
  connection,
  readable: true,
  bucketTrouble: null,
  stored: { parts: 0, bytes: 0 },
  objects: [],
  findings: [],
};
const there = { key: 'k/film.mp4', reason: null, difference: false, mark: '=', remedy: null } as const;
const lost = {
  key: 'k/film.mp4',
  reason: { code: 'missing_object', kind: 'media' },
  difference: true,
  mark: '-',
  remedy: 'fetch',
} as const;
const found = { assetId: 'a', verificationId: 'v', at: later, key: 'k/film.mp4', reason: lost.reason };
const delayed = (delayedReason: Reason): Connection => ({ ...connection, delayedUntil: later, delayedReason });
const media = {
  key: 'k/film.mp4',
  bytes: 2048,
  variant: 'mp4',
  checksums: { crc32: '0a' },
  etag: null,
  version: 'v',
} as const;
const asset = (state: Asset['state'], more: Partial<Asset> = {}) =>
  ({
    id: 'a',
    connectionId: 'c',
    state,
    reason: null,
    skipped: false,
    attempts: 0,
    listed: { id: 'a' },
    media: null,
    upload: null,
    nextAt: now,
    queuedAt: null,
    leaseUntil: null,
    processingSince: null,
    mirroredAt: null,
    verifiedAt: null,
    transcriptState: 'none',
    transcriptDeadline: null,
    thumbnailState: 'none',
    ...more,
  }) as Asset;

describe('the explanation of an asset', () => {
  test.each<[string, Asset, Partial<Circumstances>, RegExp]>([
    ['waits for a slot', asset('pending'), {}, /not in the bucket yet.*waits for a free slot/],
    ['is queued', asset('pending', { queuedAt: now }), {}, /in the queue since 2026-03-01T12:00:00/],
    ['a worker has', asset('transferring', { leaseUntil: later }), {}, /A worker is working on it/],
    [
      'a worker transfers in parts',
      asset('transferring', { leaseUntil: later, upload: { bytes: 4096 } as never }),
      { stored: { parts: 1, bytes: 2048 } },
      /1 part with 2\.0 KiB of 4\.0 KiB stored/,
    ],
    [
      'waits for its transcript',
      asset('pending', { nextAt: later, reason: { code: 'error', text: 'the link answered 500' } }),
      {},
      /Next try at 2026-03-01T12:10.*the link answered 500.*retry a/,
    ],
    [
      'waits because the library asked its connection to wait',
      asset('pending'),
      {
        connection: delayed({ code: 'asked_to_wait', request: 'read asset a', status: 429, askedMs: 600_000 }),
      },
      /asked its connection to wait until 2026-03-01T12:10.*\(read asset a: the library asked to wait \(429\)/,
    ],
    [
      'waits because the library does not answer',
      asset('pending'),
      {
        connection: delayed({
          code: 'library_unavailable',
          error: 'read /me: connect ECONNREFUSED',
          retryInMs: 600_000,
        }),
      },
      /does not answer, or only with errors, so the connection waits until 2026-03-01T12:10.*ECONNREFUSED/,
    ],
    [
      'waits because its connection waits for another reason',
      asset('pending'),
      { connection: delayed({ code: 'no_access_token', error: 'no answer' }) },
      /^It is not in the bucket yet\. Its connection waits until 2026-03-01T12:10\S* \(no access token for now: no answer\)\. It then continues/,
    ],
    [
      'is in the bucket, which was asked',
      asset('mirrored', { media, mirroredAt: now, nextAt: null }),
      { objects: [there, { ...there, key: 'k/film.mp4.asset.json' }] },
      /^It is in the bucket since .*\)\. Checked in the bucket just now: all 2 objects are there\.$/,
    ],
    [
      'is missing in the bucket',
      asset('mirrored', { media, mirroredAt: now, nextAt: null }),
      { objects: [lost], findings: [found] },
      /^It should be in the bucket since .* The verification of 2026-03-01T12:10:00.000Z found: k\/film.mp4: missing in the bucket: the media\. Checked in the bucket just now: k\/film.mp4: missing in the bucket: the media\. Repair it with `asset-mirror verify --repair`\.$/,
    ],
    [
      'cannot be checked, because the bucket is overloaded',
      asset('mirrored', { media, mirroredAt: now, nextAt: null }),
      {
        objects: [
          {
            ...there,
            reason: { code: 'unreadable_object', error: 'slow down', kind: 'media' },
            difference: true,
            mark: '!',
          },
        ],
      },
      /^It is in the bucket since .* just now: k\/film.mp4: cannot be read: slow down\.$/,
    ],
    [
      'is there again after a verification missed it',
      asset('mirrored', { media, mirroredAt: now, nextAt: null }),
      { objects: [there], findings: [found] },
      /^It is in the bucket since .* found: k\/film.mp4: missing .* just now: the object is there\.$/,
    ],
    [
      'was missing, and the bucket cannot be checked',
      asset('mirrored', { media, mirroredAt: now, nextAt: null }),
      { objects: 'no answer within 3 s', findings: [found] },
      /^It should be in the bucket .* could not be checked now: no answer within 3 s\. Repair it/,
    ],
    [
      'has an object that could not be read, and the bucket cannot be checked',
      asset('mirrored', { media, mirroredAt: now, nextAt: null }),
      {
        objects: 'no answer within 3 s',
        findings: [{ ...found, reason: { code: 'unreadable_object', error: 'slow down', kind: 'media' } }],
      },
      /^It is in the bucket .* could not be checked now: no answer within 3 s\.$/,
    ],
    [
      'is gone and was missing, and the bucket cannot be checked',
      asset('gone', { media, mirroredAt: now, nextAt: null }),
      { objects: 'no answer within 3 s', findings: [found] },
      /It should be in the bucket .* could not be checked now: no answer within 3 s\.$/,
    ],
    [
      'is gone and missing in the bucket',
      asset('gone', { media, mirroredAt: now, nextAt: null }),
      { objects: [{ ...lost, remedy: null }] },
      /^It is no longer in the library\. .* It should be in the bucket .* missing in the bucket: the media\.$/,
    ],
    [
      'has a paused connection',
      asset('pending'),
      { connection: { ...connection, status: 'paused' } },
      /paused\. .*resume c/,
    ],
    [
      'has a disconnected connection',
      asset('pending'),
      { connection: { ...connection, status: 'disconnected' } },
      /connect-link --connection c/,
    ],
    [
      'has no connection',
      asset('pending', { connectionId: null }),
      { connection: undefined },
      /No connection can read its company/,
    ],
    ['no connection can read', asset('pending'), { readable: false }, /can no longer read its company/],
    [
      'waits because the bucket is unavailable',
      asset('pending'),
      { bucketTrouble: 'disk full' },
      /all assets wait: disk full/,
    ],
    [
      'is mirrored again',
      asset('pending', { media }),
      {},
      /file in the library was replaced, an object is missing or damaged/,
    ],
    [
      'is skipped',
      asset('pending', {
        skipped: true,
        reason: { code: 'skipped_by_filter', list: 'exclude', field: 'type', value: 'videos' },
        nextAt: null,
      }),
      {},
      /skipped by a filter of connection c: type videos.*set c/,
    ],
    [
      'is still processing',
      asset('processing', { nextAt: later, processingSince: now }),
      {},
      /still transcoding it, since .*Next try at/,
    ],
    [
      'has no file',
      asset('unavailable', { nextAt: null, reason: { code: 'error', text: 'none is attached' } }),
      {},
      /no file for it: none is attached.*full sync/,
    ],
    [
      'failed',
      asset('failed', { nextAt: null, attempts: 5, reason: { code: 'error', text: 'wrong size' } }),
      {},
      /failed after 5 attempts: wrong size.*retry a/,
    ],
    [
      'has an unreadable listing',
      asset('failed', { nextAt: null, listed: {}, reason: { code: 'unreadable_listing', problem: 'size: x' } }),
      {},
      /listing cannot be used/,
    ],
    ['is gone', asset('gone', { nextAt: null }), {}, /never mirrored/],
    ['is gone and has a copy', asset('gone', { nextAt: null, media }), {}, /stay in the bucket.*k\/film\.mp4/],
    [
      'is mirrored',
      asset('mirrored', { nextAt: null, media, mirroredAt: now, verifiedAt: later }),
      {},
      /since 2026-03-01T12:00.*k\/film\.mp4 \(2\.0 KiB, the mp4 rendition, crc32 0a\).*checksum was last verified at 2026-03-01T12:10/,
    ],
    [
      'waits for its transcript',
      asset('mirrored', { media, nextAt: later, transcriptState: 'pending', transcriptDeadline: later }),
      {},
      /transcript is not available yet\. Follow-up checks continue until 2026-03-01T12:10.*Next try at/,
    ],
    [
      'gave up its transcript',
      asset('mirrored', { media, nextAt: null, transcriptState: 'gave_up' }),
      {},
      /transcript was given up.*retry a/,
    ],
  ])('the explanation covers an asset that %s', (_, of, more, words) => {
    expect(explanationOf(of, { ...circumstances, ...more }).join(' ')).toMatch(words);
  });

  test('the explanation depends on the code of a reason, not on its words', () => {
    const why = (reason: Reason) =>
      explanationOf(asset('pending'), { ...circumstances, connection: delayed(reason) })[1];
    expect(why({ code: 'asked_to_wait', request: 'x', status: 429, askedMs: 1 })).toMatch(
      /^The library asked its connection to wait/,
    );
    expect(why({ code: 'library_unavailable', error: 'in other words' })).toMatch(/^The library does not answer/);
    const text = 'the library asked to wait; next request in 10m 00s';
    expect(why({ code: 'error', text })).toMatch(/^Its connection waits until/);
  });
});
