import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { idSegment, mediaKey, safeFilename, sidecarKeys } from '../../src/storage/keys.ts';
import { growth } from '../support/growth.ts';

const bytes = (text: string) => Buffer.byteLength(text);
const family = '👩‍👩‍👧‍👦';

/** Text of every kind: plain, of any code units (also lone surrogates), and of characters that are special in paths. */
const text = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 300 }),
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 120 }).map((units) => String.fromCharCode(...units)),
  fc.string({
    unit: fc.constantFrom(
      ...[
        '.',
        '..',
        '/',
        '\\',
        '_',
        '_mirror',
        '%',
        '%2E',
        '?',
        '#',
        '~',
        ' ',
        '\0',
        '\n',
        '\u2028',
        '\uffff',
        '\u202e',
        'é',
        'e\u0301',
      ],
      ...['.mp4', 'a', family, '\u0338', 'x'.repeat(90), ' '.repeat(90), '\ud800'],
    ),
    maxLength: 12,
  }),
);

function expectSegment(segment: string): void {
  expect(segment).not.toBe('');
  expect(segment).not.toMatch(/[/\\]|[\p{Cc}\p{Zl}\p{Zp}]/u);
  expect(['.', '..']).not.toContain(segment);
  expect(segment.isWellFormed()).toBe(true);
  expect(segment.normalize('NFC')).toBe(segment);
  expect(bytes(segment)).toBeLessThanOrEqual(200);
}

describe('a text of any length', () => {
  const odd = ['\u0315\u0300', 'a\u0338', '\u1100\u1161', ' ', '.', '/', '\u0001', family];

  test.each(odd)('a text becomes a file name or a segment in a time that grows with its length (%j)', (part) => {
    const text = (length: number) => part.repeat(length / part.length);
    expect(growth(text, (name) => safeFilename(name))).toBeLessThan(24);
    expect(growth(text, idSegment)).toBeLessThan(24);
  });

  test('a long file name keeps its extension', () => {
    const name = safeFilename(`${'long '.repeat(20_000)}.mov`);
    expectSegment(name);
    expect(name).toMatch(/^long long .*\.mov$/);
    expectSegment(safeFilename('\u0315\u0300'.repeat(50_000)));
  });

  test('a long id becomes a segment of its own', () => {
    const long = 'x'.repeat(100_000);
    const segments = new Set([long, `${long}y`, `y${long}`, long.slice(1)].map(idSegment));
    expect(segments.size).toBe(4);
    for (const segment of segments) expectSegment(segment);
  });
});

describe('a file name', () => {
  test.each([
    ['photo.jpg', 'photo.jpg'],
    ['Grüße aus Köln.mp4', 'Grüße aus Köln.mp4'],
    ['Gru\u0308ße.mp4', 'Grüße.mp4'],
    ['日本語 🎬.mov', '日本語 🎬.mov'],
    ['100% #1 what?.txt', '100% #1 what?.txt'],
    ['../../etc/passwd', '.._.._etc_passwd'],
    ['..\\..\\boot.ini', '.._.._boot.ini'],
    ['/absolute', '_absolute'],
    ['a\0b\r\nc\u007f\u0085\u2028\ufffe\uffffd.txt', 'abcd.txt'],
    ['', 'asset'],
    [null, 'asset'],
    [undefined, 'asset'],
    ['.', 'asset'],
    ['..', 'asset'],
    [' . . ', 'asset'],
    ['\0', 'asset'],
    ['.\0.', 'asset'],
    ['.profile', '.profile'],
    ['lone \ud800.txt', 'lone \ufffd.txt'],
    ['/\u0338', '_\u0338'],
    [' '.repeat(300), 'asset'],
    [`${' '.repeat(300)}x`, 'asset'],
  ])('the file name %j becomes %j', (name, expected) => {
    expect(safeFilename(name)).toBe(expected);
  });

  test.each([
    ['clip.mov', 'clip.mp4'],
    ['clip', 'clip.mp4'],
    ['clip.mp4', 'clip.mp4'],
    ['a.b.c', 'a.b.mp4'],
    ['.profile', '.profile.mp4'],
    ['ends with a dot.', 'ends with a dot..mp4'],
    ['', 'asset.mp4'],
    ['Talk with Mr. Smith', 'Talk with Mr. Smith.mp4'],
  ])('the file name %j as mp4 becomes %j', (name, expected) => {
    expect(safeFilename(name, 'mp4')).toBe(expected);
  });

  test.each([
    ['x'.repeat(300), 'x'.repeat(200)],
    [`${'x'.repeat(300)}.jpeg`, `${'x'.repeat(195)}.jpeg`],
    [`${'ü'.repeat(300)}.mp4`, `${'ü'.repeat(98)}.mp4`],
    [`${family.repeat(20)}.jpg`, `${family.repeat(7)}.jpg`],
    [`x.${'y'.repeat(300)}`, `x.${'y'.repeat(198)}`],
  ])('a long file name is cut between characters, and keeps its extension', (name, expected) => {
    expect(safeFilename(name)).toBe(expected);
  });

  test('a character that is longer than the limit is cut between its code points', () => {
    const name = `e${'\u0301\u0302'.repeat(200)}`;
    const safe = safeFilename(name);
    expect(bytes(safe)).toBeGreaterThan(190);
    expectSegment(safe);
  });

  test('a file name becomes one segment of at most 200 bytes, and stays the same if it is one already', {
    tags: 'slow',
  }, () => {
    fc.assert(
      fc.property(text, fc.option(fc.constantFrom('mp4', 'jpg', 'tar.gz'), { nil: undefined }), (name, extension) => {
        const safe = safeFilename(name, extension);
        expectSegment(safe);
        expect(safeFilename(safe)).toBe(safe);
        if (extension) expect(safe.endsWith(`.${extension}`) || safe === 'asset').toBe(true);
      }),
      { numRuns: 3000 },
    );
  });

  test('a file name gets a new extension only once', () => {
    fc.assert(
      fc.property(text, (name) => {
        const safe = safeFilename(name, 'mp4');
        expect(safeFilename(safe, 'mp4')).toBe(safe);
      }),
      { numRuns: 2000 },
    );
  });

  test('a file name keeps an extension of ordinary length', () => {
    fc.assert(
      fc.property(text, fc.stringMatching(/^[a-z0-9]{1,10}$/), (stem, extension) => {
        expect(safeFilename(`x${stem}.${extension}`).endsWith(`.${extension}`)).toBe(true);
      }),
    );
  });

  test('a file name keeps within a limit that is longer than usual', () => {
    expect(bytes(safeFilename(`${'ü'.repeat(1000)}.mp4`, undefined, 800))).toBe(800);
  });
});

describe('an id as a segment', () => {
  test.each([
    ['cmp_01HZ', 'cmp_01HZ'],
    ['3f2c-9a', '3f2c-9a'],
    ['Ünïcode', 'Ünïcode'],
    ['a/b', 'a%2Fb'],
    ['a%2Fb', 'a%252Fb'],
    ['a\\b', 'a%5Cb'],
    ['..', '%2E.'],
    ['.hidden', '%2Ehidden'],
    ['_', '%5F'],
    ['_mirror', '%5Fmirror'],
    ['_mirrored', '_mirrored'],
    ['__', '__'],
    ['what?#', 'what%3F%23'],
    ['a\nb', 'a%0Ab'],
    ['~', '%7E'],
  ])('the id %j becomes the segment %j', (id, expected) => {
    expect(idSegment(id)).toBe(expected);
  });

  test('the segment of an id ends in a digest if the id is empty, too long or not NFC', () => {
    expect(idSegment('')).toMatch(/^~[\da-f]{64}$/);
    expect(idSegment('x'.repeat(201))).toMatch(/^x{120}~[\da-f]{64}$/);
    expect(idSegment('e\u0301')).toMatch(/^é~[\da-f]{64}$/);
  });

  test('the segment of an id is one segment that is never hidden, `_` or `_mirror`', () => {
    fc.assert(
      fc.property(text, (id) => {
        const segment = idSegment(id);
        expectSegment(segment);
        expect(segment.startsWith('.')).toBe(false);
        expect(['_', '_mirror']).not.toContain(segment);
        expect(segment).not.toMatch(/[?#]/);
      }),
      { numRuns: 3000 },
    );
  });

  test.each([
    ['é', 'e\u0301'],
    ['\ud800', '\ud801'],
    ['\ud800', '\ufffd'],
    ['a/b', 'a%2Fb'],
    [`${'x'.repeat(300)}1`, `${'x'.repeat(300)}2`],
    ['', '~'],
    ['.', '%2E'],
    ['_', '%5F'],
  ])('the ids %j and %j have different segments', (a, b) => {
    expect(idSegment(a)).not.toBe(idSegment(b));
  });

  test('two ids never share a segment, even if one imitates that of the other', () => {
    fc.assert(
      fc.property(text, text, (a, b) => {
        for (const other of [b, idSegment(a), a.normalize('NFC'), a.normalize('NFD'), a.toWellFormed(), `${a} `]) {
          if (a !== other) expect(idSegment(a) === idSegment(other)).toBe(false);
        }
      }),
      { numRuns: 3000 },
    );
  });
});

describe('a key', () => {
  const template = '{companyId}/{projectId}/{assetId}/{filename}';
  const parts = { companyId: 'c1', projectId: 'p1', assetId: 'a1', filename: 'clip.mp4' };

  test.each([
    [template, parts, 'c1/p1/a1/clip.mp4'],
    [template, { ...parts, projectId: null }, 'c1/_/a1/clip.mp4'],
    [template, { ...parts, projectId: undefined }, 'c1/_/a1/clip.mp4'],
    [template, { ...parts, projectId: '' }, 'c1/_/a1/clip.mp4'],
    [template, { ...parts, projectId: '_' }, 'c1/%5F/a1/clip.mp4'],
    [template, { ...parts, companyId: '_mirror' }, '%5Fmirror/p1/a1/clip.mp4'],
    [template, { ...parts, companyId: '../..' }, '%2E.%2F../p1/a1/clip.mp4'],
    [template, { ...parts, assetId: '{filename}' }, 'c1/p1/{filename}/clip.mp4'],
    [template, { ...parts, filename: '$& {assetId}.mp4' }, 'c1/p1/a1/$& {assetId}.mp4'],
    ['media/{assetId}/{filename}', parts, 'media/a1/clip.mp4'],
    ['{companyId}-{projectId}/{assetId}/{filename}', parts, 'c1-p1/a1/clip.mp4'],
  ])('the key with template %j of asset %j is %j', (pattern, given, expected) => {
    expect(mediaKey(pattern, given)).toBe(expected);
  });

  test('a key has as many segments as its template, whatever the ids and the name', () => {
    fc.assert(
      fc.property(text, fc.option(text), text, text, (companyId, projectId, assetId, name) => {
        const key = mediaKey(template, { companyId, projectId, assetId, filename: safeFilename(name) });
        const segments = key.split('/');
        expect(segments).toHaveLength(4);
        for (const segment of segments) expectSegment(segment);
        expect(segments[0]).not.toBe('_mirror');
      }),
    );
  });

  test('a key is never shared by two assets', () => {
    fc.assert(
      fc.property(text, text, text, (a, b, name) => {
        const of = (assetId: string) => mediaKey(template, { ...parts, assetId, filename: safeFilename(name) });
        if (a !== b) expect(of(a) === of(b)).toBe(false);
      }),
    );
  });

  test('a key has the keys of its sidecars beside it', () => {
    const key = 'c1/p1/a1/clip.mp4';
    expect({
      record: sidecarKeys.record(key),
      captions: sidecarKeys.captions(key),
      text: sidecarKeys.text(key),
      transcript: sidecarKeys.transcript(key),
      thumbnail: sidecarKeys.thumbnail(key, 'jpg'),
    }).toEqual({
      record: 'c1/p1/a1/clip.mp4.asset.json',
      captions: 'c1/p1/a1/clip.mp4.vtt',
      text: 'c1/p1/a1/clip.mp4.txt',
      transcript: 'c1/p1/a1/clip.mp4.transcript.json',
      thumbnail: 'c1/p1/a1/clip.mp4.thumbnail.jpg',
    });
  });

  test('a key and the keys of its sidecars fit into names of 255 bytes', () => {
    const longest = safeFilename('x'.repeat(300));
    for (const name of [
      sidecarKeys.record(longest),
      sidecarKeys.transcript(longest),
      sidecarKeys.thumbnail(longest, 'jpeg'),
    ]) {
      expect(bytes(name)).toBeLessThanOrEqual(255);
    }
  });
});
