import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Rejected } from '../../src/floor/errors.ts';
import {
  type ApiAsset,
  asset,
  assetAnswer,
  assetsAnswer,
  company,
  meAnswer,
  parseAnswer,
  project,
  storable,
  transcriptAnswer,
  withoutLinks,
} from '../../src/source/schemas.ts';
import { growth } from '../support/growth.ts';

const link = 'https://media.example.com/a1?expires=1&signature=secret';
const whole = {
  id: 'a1',
  name: 'Film.mov',
  mimeType: 'video/quicktime',
  assetType: 'videos',
  size: 5,
  duration: 1.5,
  width: 1920,
  height: 1080,
  projectId: 'p1',
  projectName: 'Spring',
  tags: ['one', 'two'],
  uploadDate: 1_700_000_000_000,
  status: 'ready',
  hasTranscript: true,
  thumbnailUrl: link,
};
const download = { url: link, mp4Url: link, filename: 'Film.mov', expiresAt: 1_700_000_900 };
const transcript = {
  assetId: 'a1',
  language: 'en',
  durationSec: 1.5,
  text: 'Hello',
  vtt: 'WEBVTT\n',
  words: [{ word: 'Hello', start: 0, end: 0.5 }],
};

/** Another value for one field, by its path. */
function withField(value: object, path: string, wrong: unknown): unknown {
  const copy = structuredClone(value) as Record<string, unknown>;
  const names = path.split('.');
  const last = names.pop()!;
  const holder = names.reduce((at, name) => at[name] as Record<string, unknown>, copy);
  holder[last] = wrong;
  return copy;
}

describe('the error of an invalid answer', () => {
  const answer = { asset: { ...whole, download } };
  const cases: [string, unknown[]][] = [
    ['asset.id', [undefined, null, 5, '', 'x'.repeat(1001), 'ä'.repeat(501), 'a\0', '\ud800', 'x\udc00', '.', '..']],
    ['asset.mimeType', [5]],
    ['asset.assetType', [5, ['videos'], 'x'.repeat(1001)]],
    ['asset.size', ['5', -1, 1.5, 2 ** 60, true]],
    ['asset.projectId', [5, 'ä'.repeat(501)]],
    ['asset.uploadDate', ['2024-01-01', 1.5]],
    ['asset.status', [5, true]],
    ['asset.hasTranscript', ['true', 1]],
    ['asset.download', ['https://h', 5]],
    ['asset.download.url', [5, {}]],
    ['asset.download.mp4Url', [5, false]],
    ['asset.download.filename', [5]],
    ['asset', [undefined, null, 'a1', []]],
  ];
  for (const [path, values] of cases) {
    it(`a wrong ${path} in the details of an asset is named in the error`, () => {
      for (const wrong of values) {
        const parse = () => parseAnswer(assetAnswer, 'read asset a1', withField(answer, path, wrong));
        expect(parse, String(wrong)).toThrow(Rejected);
        expect(parse).toThrow(`read asset a1: the library's answer breaks the API schema: ${path}: `);
      }
    });
  }

  const others: [string, Parameters<typeof parseAnswer>[0], unknown, string][] = [
    ['user.id of /me', meAnswer, { user: { name: 'Ada' }, companies: [] }, 'user.id'],
    ['companies of /me', meAnswer, { user: { id: 'u' }, companies: {} }, 'companies'],
    ['assets of a page', assetsAnswer, { assets: null }, 'assets'],
    ['nextCursor of a page', assetsAnswer, { assets: [], nextCursor: 5 }, 'nextCursor'],
    ['assetId of a transcript', transcriptAnswer, { ...transcript, assetId: undefined }, 'assetId'],
    ['vtt of a transcript', transcriptAnswer, { ...transcript, vtt: 5 }, 'vtt'],
    ['text of a transcript', transcriptAnswer, { ...transcript, text: ['x'] }, 'text'],
    ['an answer that is a list', meAnswer, [], 'answer'],
    ['an answer that is null', assetAnswer, null, 'answer'],
  ];
  for (const [what, schema, body, path] of others) {
    it(`a wrong answer is named in the error: ${what}`, () =>
      expect(() => parseAnswer(schema, 'read', body)).toThrow(`breaks the API schema: ${path}: `));
  }

  it('the error of a wrong field does not show its value', () => {
    const parse = () => parseAnswer(assetAnswer, 'read', { asset: { ...whole, size: link, download } });
    expect(parse).toThrow(/^[^?]*$/);
  });
});

describe('an answer', () => {
  it('an answer keeps unknown fields, states and types', () => {
    const odd = { ...whole, status: 'archived', assetType: 'holograms', colour: { of: ['it'] }, deletedAt: null };
    expect(asset.parse(odd)).toEqual(odd);
    const detail = { asset: { ...odd, download: { ...download, hlsUrl: 'x' } }, meta: 1 };
    expect(assetAnswer.parse(detail)).toEqual(detail);
    expect(company.parse({ id: 'c', name: 'C', plan: 'gold' })).toEqual({ id: 'c', name: 'C', plan: 'gold' });
  });

  it('an answer keeps fields unchanged that no decision depends on', () => {
    for (const odd of ['soon', true, [], {}]) {
      const fields = { name: odd, width: odd, duration: odd };
      const detail = { asset: { ...whole, ...fields, download: { ...download, expiresAt: odd } } };
      expect(assetAnswer.parse(detail)).toEqual(detail);
      for (const field of ['language', 'durationSec', 'words']) {
        expect(transcriptAnswer.parse({ ...transcript, [field]: odd })).toEqual({ ...transcript, [field]: odd });
      }
    }
  });

  it('an answer treats a thumbnail link that is not text as absent', () => {
    const { thumbnailUrl: _, ...others } = whole;
    expect(asset.parse({ ...whole, thumbnailUrl: 7 })).toEqual(others);
  });

  it('an answer of the library about projects needs only their ids', () => {
    expect(project.parse({ id: 'p1', name: 5, status: 7 })).toMatchObject({ id: 'p1' });
  });

  it('an answer needs only the id of each asset', () => {
    expect(asset.parse({ id: 'a1' })).toEqual({ id: 'a1' });
    const nulls = Object.fromEntries(Object.keys(whole).map((name) => [name, null]));
    expect(asset.parse({ ...nulls, id: 'a1' })).toEqual({ ...nulls, id: 'a1' });
    expect(assetAnswer.parse({ asset: { id: 'a1', download: null } })).toEqual({ asset: { id: 'a1', download: null } });
  });

  it('an answer may have a transcript without text, without speech, or with an explicit noSpeech', () => {
    for (const given of [
      transcript,
      { ...transcript, words: null },
      { ...transcript, noSpeech: false },
      { assetId: 'a1', noSpeech: true },
      { assetId: 'a1', noSpeech: true, text: null, words: [] },
      { assetId: 'a1', text: 'older' },
    ]) {
      expect(transcriptAnswer.parse(given)).toEqual(given);
    }
  });
});

describe('removing links', () => {
  const clean = (value: object) => withoutLinks(value as ApiAsset);

  it('an asset without links has all its other fields as received', () => {
    expect(clean({ ...whole, download })).toEqual({
      ...Object.fromEntries(Object.entries(whole).filter(([name]) => name !== 'thumbnailUrl')),
      download: { filename: 'Film.mov' },
    });
  });

  it('an asset without links has no link in any field, whatever its name and depth', () => {
    const signed = [
      link,
      `see ${link} now`,
      's3://bucket/x?X-Amz-Signature=secret',
      '/media/a1?expires=1&signature=secret',
    ];
    for (const address of [...signed, 'HTTPS://H/X?sig=secret', '/a?token=secret&x=1', '/a?X-Amz-Credential=secret']) {
      const odd = {
        id: 'a1',
        preview: address,
        previews: [address, { large: address, url: address }],
        deep: { name: address, tags: [address], id: address, download: { filename: address } },
        [address]: 1,
        download: { hls: address, url: address, more: { filename: address } },
      };
      expect(JSON.stringify(clean(odd))).not.toContain('secret');
      expect(clean(odd).id).toBe('a1');
    }
  });

  it('text that people wrote stays when links are removed, even if it has an address', () => {
    const odd = {
      id: 'a1',
      name: 'https://h/x?y=1',
      tags: ['see https://h/'],
      projectName: 'http://p',
      note: 'a plain note',
    };
    expect(clean({ ...odd, download: { filename: 'http___h.mov' } })).toEqual({
      ...odd,
      download: { filename: 'http___h.mov' },
    });
  });

  it('numbers, nulls, lists and empty values stay when links are removed', () => {
    const odd = { id: 'a1', none: null, no: false, zero: 0, list: [1, [2, { three: 3 }]], empty: {} };
    expect(clean(odd)).toEqual(odd);
    expect(clean({ id: 'a1', download: null })).toEqual({ id: 'a1' });
    const proto = '{"id":"a1","more":{"__proto__":{"x":1}},"__proto__":2}';
    expect(JSON.stringify(clean(JSON.parse(proto)))).toBe(proto);
  });
});

describe('an unknown field', () => {
  it.each(['a-', 'a.b+', 'a:/', '?a-', '&', '?sig'])(
    'links in an unknown field are found in a time that grows with its length, also if it is all %j',
    (part) => {
      const asset = (length: number): ApiAsset => ({ id: 'a1', more: part.repeat(length / part.length) });
      expect(growth(asset, withoutLinks)).toBeLessThan(24);
    },
  );
});

describe('values for the database', () => {
  it('text for the database has neither NUL nor half a surrogate pair, in keys and values', () => {
    expect(storable({ 'a\0b': ['x\0', '\ud83d', '\ude00y', '😀', { '\ud800': 1 }] })).toEqual({
      ab: ['x', '\ufffd', '\ufffdy', '😀', { '\ufffd': 1 }],
    });
  });

  it('numbers for the database are as JSON keeps them', () => {
    expect(storable(JSON.parse('{"a": [-0, 1e999, -1e999, 0.5]}'))).toEqual({ a: [0, null, null, 0.5] });
  });

  it('any JSON becomes storable, and storable JSON stays the same', { tags: 'slow' }, () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'binary' }), (value) => {
        const text = JSON.stringify(storable(value));
        expect(text).not.toMatch(/\\u0000|\\ud[89a-f]/i);
        expect(storable(JSON.parse(text))).toEqual(JSON.parse(text));
      }),
    );
    const fine = { a: [1, 'two', null, { b: '😀\n' }] };
    expect(storable(fine)).toEqual(fine);
  });
});
