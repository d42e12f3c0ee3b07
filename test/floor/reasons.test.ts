import { readFileSync } from 'node:fs';
import { describe, expect, it, test } from 'vitest';
import { KnownError, Rejected, RetryLater, toReason } from '../../src/floor/errors.ts';
import type { Reason, ReasonCode } from '../../src/floor/reason-codes.ts';
import { because, reasonCodes, renderReason } from '../../src/floor/reasons.ts';
import { HttpError } from '../../src/source/http.ts';

/** Each code with all its data, and its sentence. */
const table: { [Code in ReasonCode]: [Reason & { code: Code }, string][] } = {
  error: [[{ code: 'error', text: 'no space' }, 'no space']],
  http_status: [
    [{ code: 'http_status', request: 'read asset a', status: 404 }, 'read asset a: the library answered 404'],
  ],
  asked_to_wait: [
    [
      { code: 'asked_to_wait', request: 'read /me', status: 429, askedMs: 20_000 },
      'read /me: the library asked to wait (429) for 20.0 s',
    ],
    [
      { code: 'asked_to_wait', request: 'read /me', status: 503, askedMs: 3_600_000_000, retryInMs: 3_600_000 },
      'read /me: the library asked to wait (503) for 41d 16h, longer than the maximum; next request after 1h 00m',
    ],
    [
      { code: 'asked_to_wait', request: 'read /me', status: 429, askedMs: null },
      'read /me: the library asked to wait (429) without a time',
    ],
  ],
  library_unavailable: [
    [{ code: 'library_unavailable', error: 'ECONNREFUSED' }, 'ECONNREFUSED; other requests fail, too'],
    [
      { code: 'library_unavailable', error: 'ECONNREFUSED', retryInMs: 600_000 },
      'ECONNREFUSED; next request in 10m 00s',
    ],
  ],
  bucket_unavailable: [[{ code: 'bucket_unavailable', error: 'the store is full' }, 'the store is full']],
  object_refused: [[{ code: 'object_refused', error: 'no space for k' }, 'no space for k']],
  no_access_token: [[{ code: 'no_access_token', error: 'no answer' }, 'no access token for now: no answer']],
  new_token_refused: [[{ code: 'new_token_refused' }, expect.stringContaining('just issued')]],
  connection_waits: [[{ code: 'connection_waits' }, 'its connection waits']],
  shutting_down: [[{ code: 'shutting_down' }, 'shutting down']],
  store_busy: [[{ code: 'store_busy', store: 'b' }, 'b: the store asked to slow down']],
  too_slow: [
    [
      { code: 'too_slow', bytesPerSecond: 1024, least: 10_240, windowMs: 60_000 },
      'the file came at 1.0 KiB/s for 1m 00s, below TRANSFER_MIN_RATE (10.0 KiB/s)',
    ],
  ],
  tokens_unreadable: [
    [{ code: 'tokens_unreadable', connectionId: 'c', error: 'sealed with key k' }, 'connection c: sealed with key k'],
  ],
  no_reader: [[{ code: 'no_reader' }, 'no connection can read its company now']],
  skipped_by_filter: [
    [
      { code: 'skipped_by_filter', list: 'exclude', field: 'type', value: 'videos' },
      'skipped by a filter: type videos',
    ],
    [
      { code: 'skipped_by_filter', list: 'include', field: 'type', value: 'brand assets' },
      'skipped by a filter: type brand assets is not included',
    ],
    [
      { code: 'skipped_by_filter', list: 'include', field: 'project', value: null },
      'skipped by a filter: it has no project, but the filter requires one of a list',
    ],
  ],
  gone: [
    [{ code: 'gone', inBucket: false }, 'no longer in the library, and was never mirrored'],
    [{ code: 'gone', inBucket: true }, 'no longer in the library; its objects are still in the bucket'],
  ],
  unreadable_listing: [[{ code: 'unreadable_listing', problem: 'size: x' }, 'its listing cannot be read: size: x']],
  invalid_answer: [
    [
      { code: 'invalid_answer', request: 'read asset a', problem: 'size: x' },
      "read asset a: the library's answer breaks the API schema: size: x",
    ],
  ],
  no_file: [
    [{ code: 'no_file', status: 'unavailable' }, 'the library says that no file is attached'],
    [{ code: 'no_file', status: 'frozen' }, 'the library gives it the status "frozen" and no file'],
    [{ code: 'no_file', status: null }, 'the library gives it the status null and no file'],
  ],
  still_processing: [
    [{ code: 'still_processing', minutes: 1440 }, 'still processing 1440 minutes after it was first seen'],
  ],
  damaged_original: [
    [
      { code: 'damaged_original', key: 'a/film.mov' },
      'the stored original is damaged or unreadable, and the library has only the mp4 rendition; to accept that, remove a/film.mov from the bucket and retry',
    ],
  ],
  no_link: [[{ code: 'no_link' }, 'the library says that the file is there, but gives no link to it']],
  link_not_https: [[{ code: 'link_not_https', host: 'h' }, expect.stringContaining('leads to h by http,')]],
  link_not_public: [
    [
      { code: 'link_not_public', host: 'h', where: 'h (10.0.0.1)' },
      'the download link leads to h (10.0.0.1), which is not a public address; add h to DOWNLOAD_ALLOW_PRIVATE to allow it',
    ],
  ],
  wrong_length: [
    [
      { code: 'wrong_length', of: 'download', expected: 13, got: 12 },
      'wrong size: the library says 13 bytes, the download has 12',
    ],
    [
      { code: 'wrong_length', of: 'object', expected: 13, got: 12 },
      'has 12 bytes, but its record says 13; it is fetched again',
    ],
    [
      { code: 'wrong_length', of: 'record', expected: 13, got: 12 },
      'has 12 bytes, but the asset has 13; it is fetched again',
    ],
    [
      { code: 'wrong_length', of: 'object', expected: 13, got: 12, kind: 'media', gone: true },
      'has 12 bytes, but 13 were stored: the media; it is no longer in the library, so it cannot be fetched again',
    ],
    [
      { code: 'wrong_length', of: 'object', expected: 13, got: 12, kind: 'record', version: 'v' },
      'has 12 bytes, but 13 were kept: the record of version v, which cannot be fetched again',
    ],
  ],
  empty: [[{ code: 'empty' }, 'the download is empty']],
  no_length: [
    [{ code: 'no_length', of: 'file' }, 'the file has no declared length, so a truncated one would not be noticed'],
    [
      { code: 'no_length', of: 'thumbnail' },
      'the thumbnail has no declared length, so a truncated one would not be noticed',
    ],
  ],
  wrong_content: [
    [{ code: 'wrong_content', of: 'file', got: 'text/html' }, 'the download is text/html, not the file'],
    [{ code: 'wrong_content', of: 'mp4', got: null }, 'the download is not an MP4'],
    [{ code: 'wrong_content', of: 'thumbnail', got: 'text/html' }, 'the thumbnail is text/html, not a picture'],
    [{ code: 'wrong_content', of: 'object', got: null }, 'differs from the content in its record; it is fetched again'],
  ],
  wrong_checksum: [
    [
      { code: 'wrong_checksum', checksum: 'CRC-32', expected: 'b', got: 'a', kind: 'media' },
      'has CRC-32 a, but b was stored: the media',
    ],
    [
      { code: 'wrong_checksum', checksum: 'SHA-256', expected: 'b', got: 'a', kind: 'media', gone: true },
      'has SHA-256 a, but b was stored: the media; it is no longer in the library, so it cannot be fetched again',
    ],
    [
      { code: 'wrong_checksum', checksum: 'CRC-32', expected: 'b', got: 'a', kind: 'media', version: 'v' },
      'has CRC-32 a, but b was kept: the media of version v, which cannot be fetched again',
    ],
  ],
  missing_object: [
    [{ code: 'missing_object' }, 'is missing, and is fetched again'],
    [{ code: 'missing_object', kind: 'transcript' }, 'missing in the bucket: the transcript'],
    [
      { code: 'missing_object', kind: 'media', gone: true },
      'missing in the bucket: the media; it is no longer in the library, so it cannot be fetched again',
    ],
    [
      { code: 'missing_object', kind: 'thumbnail', version: 'v' },
      'missing in the bucket: the thumbnail of version v, which cannot be fetched again',
    ],
  ],
  archived: [
    [{ code: 'archived' }, 'the bucket has archived it: it cannot be read before it is restored there'],
    [{ code: 'archived', kind: 'media', version: 'v' }, 'the bucket has archived it; only its length was compared'],
    [
      { code: 'archived', kind: 'media', gone: true },
      'the bucket has archived it; only its length was compared; it is no longer in the library, so it cannot be fetched again',
    ],
  ],
  unreadable_object: [
    [{ code: 'unreadable_object', error: 'reset', kind: 'media' }, 'cannot be read: reset'],
    [
      { code: 'unreadable_object', error: 'reset', kind: 'media', gone: true },
      'cannot be read: reset; it is no longer in the library, so it cannot be fetched again',
    ],
    [
      { code: 'unreadable_object', error: 'reset', kind: 'media', version: 'v' },
      'cannot be read (reset): the media of version v, which cannot be fetched again',
    ],
  ],
  foreign_object: [[{ code: 'foreign_object' }, 'no record names it']],
  too_large: [[{ code: 'too_large', store: 's3://b' }, 's3://b: the file is larger than the store accepts']],
  key_refused: [
    [{ code: 'key_refused', key: 'k', problem: 'too_long' }, expect.stringContaining('shorten KEY_TEMPLATE')],
    [{ code: 'key_refused', key: 'k', problem: 'invalid' }, 'store k: this file system does not accept such a name'],
    [
      { code: 'key_refused', key: 'k', problem: 'differs_in_case', other: 'K' },
      expect.stringContaining('store k: K differs only in case'),
    ],
  ],
  store_unsupported: [
    [
      { code: 'store_unsupported', store: 's3://b', error: '501' },
      expect.stringContaining('run asset-mirror doctor (501)'),
    ],
  ],
  superseded: [
    [
      { code: 'superseded', changed: ['size', 'upload date'] },
      'the library has another file: its size and upload date changed',
    ],
    [{ code: 'superseded', changed: ['name'] }, 'the library has another file: its name changed'],
  ],
  no_transcript: [[{ code: 'no_transcript' }, 'no transcript was available before the deadline']],
  asset_problem: [
    [
      { code: 'asset_problem', assetId: 'a', reason: { code: 'unreadable_listing', problem: 'size: x' } },
      'asset a: its listing cannot be read: size: x',
    ],
    [
      { code: 'asset_problem', assetId: null, name: 'film', reason: { code: 'empty' } },
      'asset without a readable id ("film"): the download is empty',
    ],
  ],
  unknown_asset: [
    [{ code: 'unknown_asset' }, 'not in the database; unless it was erased, a full sync of its company finds it'],
  ],
  asset_company_not_readable: [
    [
      { code: 'asset_company_not_readable', companyId: 'c' },
      'this connection cannot read its company c; if the asset has moved to another one, a full resync finds it there',
    ],
  ],
  id_conflict: [
    [{ code: 'id_conflict', companyId: 'c' }, 'company c has an asset with this id, and only that one is mirrored'],
  ],
  not_recorded: [[{ code: 'not_recorded', error: 'out of range' }, 'cannot be recorded: out of range']],
  company_not_readable: [
    [{ code: 'company_not_readable', companyId: 'c' }, 'company c: this connection cannot read it'],
  ],
  company_skipped: [[{ code: 'company_skipped', companyId: 'c' }, 'company c is skipped by a filter']],
  listing_incomplete: [
    [
      { code: 'listing_incomplete', companyId: 'c', cursor: 'to_earlier_page' },
      'company c: the last cursor leads back to an earlier page, so the listing ended here and may be incomplete',
    ],
    [
      { code: 'listing_incomplete', companyId: 'c', cursor: 'refused' },
      'company c: the library refused a cursor that it gave twice; the listing ended there',
    ],
  ],
  endless_listing: [
    [
      { code: 'endless_listing', request: 'list', idlePages: 9 },
      'list: the listing does not end: 9 of its pages had no new asset',
    ],
  ],
  another_user: [[{ code: 'another_user' }, '/me: the library answers for another user than the one who connected']],
  changes_held: [
    [
      { code: 'changes_held', kind: 'missing', count: 3, known: 5, connectionId: 'n', companyId: 'c' },
      '3 of 5 assets of company c are missing in the library; none is marked as gone. To accept it: ' +
        'asset-mirror resync n --company c --accept-gone',
    ],
  ],
  disconnected_by_operator: [[{ code: 'disconnected_by_operator' }, 'disconnected by the operator']],
  grant_ended: [[{ code: 'grant_ended' }, expect.stringContaining('connect again')]],
  refresh_answer_lost: [[{ code: 'refresh_answer_lost' }, expect.stringContaining('refresh was lost')]],
  not_mirrored: [
    [
      { code: 'not_mirrored', name: 'film', state: 'gone', reason: { code: 'gone', inBucket: false } },
      'film: no longer in the library, and was never mirrored',
    ],
    [{ code: 'not_mirrored', name: null, state: 'processing', reason: null }, 'still transcoding at the library'],
    [
      { code: 'not_mirrored', name: 'film', state: 'failed', reason: { code: 'empty' } },
      'film: failed: the download is empty',
    ],
    [{ code: 'not_mirrored', name: 'film', state: 'failed', reason: null }, 'film: failed, without a reason'],
    [{ code: 'not_mirrored', name: null, state: 'transferring', reason: null }, 'in transfer'],
    [{ code: 'not_mirrored', name: null, state: 'pending', reason: null }, 'not mirrored yet: waits for a free slot'],
    [
      {
        code: 'not_mirrored',
        name: '',
        state: 'pending',
        reason: { code: 'empty' },
        nextAt: '2026-03-01T12:00:00.000Z',
      },
      'not mirrored yet: the download is empty; next try 2026-03-01T12:00:00.000Z',
    ],
  ],
  library_not_compared: [
    [
      { code: 'library_not_compared', connectionId: 'c', status: 'incomplete', reason: { code: 'another_user' } },
      'the library was not fully compared for connection c: /me: the library answers for another user than the one who connected',
    ],
    [
      { code: 'library_not_compared', connectionId: 'c', status: 'failed', reason: { code: 'error', text: 'reset' } },
      'the library was not compared for connection c: reset',
    ],
    [
      { code: 'library_not_compared', connectionId: 'c', status: 'failed' },
      'the library was not compared for connection c: its full sync failed',
    ],
    [
      { code: 'library_not_compared', connectionId: 'c', status: 'stalled', minutes: 30 },
      'the library was not compared for connection c: its full sync has made no progress for 30 minutes',
    ],
    [
      { code: 'library_not_compared', connectionId: 'c', status: 'paused' },
      'the library was not compared for connection c: it is paused',
    ],
    [
      { code: 'library_not_compared', connectionId: null, status: 'not_connected' },
      'the library was not compared: nobody has connected',
    ],
  ],
  process_died: [[{ code: 'process_died', attempt: 3 }, 'the process died, or lost its lease, in attempt 3']],
  several: [
    [
      { code: 'several', reasons: [{ code: 'empty' }, { code: 'no_link' }], more: 3 },
      'the download is empty; the library says that the file is there, but gives no link to it; and 3 more',
    ],
    [
      { code: 'several', reasons: [{ code: 'no_transcript' }, { code: 'empty' }] },
      'no transcript was available before the deadline; the download is empty',
    ],
  ],
};
const rows = Object.values(table).flat() as [Reason, string][];

describe('the sentence of a reason', () => {
  it.each(rows)('the reason %j has its sentence', (reason, sentence) => expect(renderReason(reason)).toEqual(sentence));

  it('an unknown code of a newer release is shown as it is', () =>
    expect(renderReason({ code: 'of_the_future', text: 'x' } as never)).toBe('of_the_future'));

  it('the sentence of a reason comes after a colon, or not at all', () =>
    expect([because({ code: 'empty' }), because(null)]).toEqual([': the download is empty', '']));
});

describe('the reason code of an error', () => {
  const cases: [string, unknown, Reason][] = [
    ['recognized', new KnownError({ code: 'empty' }), { code: 'empty' }],
    ['rejected', new Rejected({ code: 'too_large', store: 's' }), { code: 'too_large', store: 's' }],
    ['an HTTP error', new HttpError('read', 500), { code: 'http_status', request: 'read', status: 500 }],
    [
      'a request to wait',
      new RetryLater({ code: 'asked_to_wait', request: 'read', status: 429, askedMs: null }, 1),
      { code: 'asked_to_wait', request: 'read', status: 429, askedMs: null },
    ],
    ['of any other kind', new Error('read', { cause: new Error('reset') }), { code: 'error', text: 'read: reset' }],
  ];
  it.each(cases)('an error that is %s has its reason code', (_, error, reason) =>
    expect(toReason(error)).toEqual(reason),
  );

  it('the reason of an error has no secret, is short, and can be stored', () => {
    const status = `svca_secret \0 ${'x'.repeat(485)}🎬`;
    const { status: stored } = toReason(new Rejected({ code: 'no_file', status })) as { status: string };
    expect(stored).toMatch(/^svc\*_… {2}x+/);
    expect(stored.length).toBeLessThanOrEqual(500);
    expect(stored.isWellFormed()).toBe(true);
  });
});

test('docs/reference/api.md lists all codes with their data', () => {
  const page = readFileSync('docs/reference/api.md', 'utf8').split('## Reasons')[1]!.split('\n## ')[0]!;
  const listed = [...page.matchAll(/^- `(\w+)`(?: \((.*?)\))?(?:: |$)/gm)].map(([, code, data = '']) => [
    code,
    [...data.matchAll(/`(\w+)`/g)].map(([, name]) => name).sort(),
  ]);
  const dataOf = (code: ReasonCode) =>
    [...new Set(table[code].flatMap(([reason]) => Object.keys(reason)))].filter((name) => name !== 'code').sort();
  expect(listed).toEqual(reasonCodes.map((code) => [code, dataOf(code)]));
});
