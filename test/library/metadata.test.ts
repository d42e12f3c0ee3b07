import { describe, expect, it } from 'vitest';
import { readMetadata } from '../../src/library/content/metadata/metadata.ts';
import { samples } from '../../src/library/content/samples.ts';
import { contentsOf } from './contents-of.ts';

function facts(file: Buffer, mimeType: string): Promise<object> {
  return readMetadata(async (offset, length) => file.subarray(offset, offset + length), file.length, mimeType);
}

const { assets } = samples(120, 1, 0, { transcode: 0, transcript: 0 });
const kinds = Map.groupBy(
  assets.filter(({ original }) => original),
  ({ mimeType, width, height }) => [mimeType, width, height].filter(Boolean).join(' '),
);

describe('metadata', () => {
  it.each([...kinds])('dimensions and duration of a sample %s are read from the file', async (_kind, [asset]) => {
    const { mimeType, width, height, duration, original } = asset!;
    const known = { ...(width && { width }), ...(height && { height }), ...(duration && { duration }) };
    const found = await facts(await contentsOf(original!()), mimeType);
    expect(found).toEqual(known.duration ? { ...known, duration: expect.closeTo(known.duration, 1) } : known);
  });

  it.each([
    ['a GIF', 'image/gif', Buffer.from('474946383961400120000000', 'hex'), { width: 320, height: 32 }],
    [
      'a lossless WebP',
      'image/webp',
      Buffer.concat([Buffer.from('RIFF\0\0\0\0WEBPVP8L\0\0\0\0'), Buffer.from('2f3f01100000000000000000', 'hex')]),
      { width: 320, height: 65 },
    ],
    [
      'a drawing with a view box only',
      'image/svg+xml',
      Buffer.from('<?xml version="1.0"?><svg xmlns="x" viewBox="0 0 640.2 480"><g/></svg>'),
      { width: 640, height: 480 },
    ],
    ['a drawing in per cent', 'image/svg+xml', Buffer.from('<svg width="100%" height="100%"></svg>'), {}],
    ['a document', 'application/pdf', Buffer.from('%PDF'), {}],
  ])('the metadata of %s is read from the file', async (_what, mimeType, file, expected) => {
    expect(await facts(file, mimeType)).toEqual(expected);
  });

  it('a damaged or unknown file has no metadata, and is no error', async () => {
    for (const [, [asset]] of kinds) {
      const file = await contentsOf(asset!.original!());
      for (const broken of [
        Buffer.alloc(0),
        file.subarray(0, 3),
        file.subarray(0, 30),
        Buffer.alloc(500),
        Buffer.alloc(500, 255),
      ]) {
        expect(Object.values(await facts(broken, asset!.mimeType)).every((value) => value > 0)).toBe(true);
      }
    }
  });
});
