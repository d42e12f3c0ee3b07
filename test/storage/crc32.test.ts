import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { crc32Combine, crc32Of } from '../../src/storage/crc32.ts';

test('the CRC-32 of two inputs and the length of the second give the CRC-32 of both together', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 5000 }), fc.uint8Array({ maxLength: 5000 }), (first, second) => {
      const together = crc32(Buffer.concat([first, second]));
      expect(crc32Combine(crc32(first), crc32(second), second.length)).toBe(together);
    }),
  );
});

test('the CRC-32 of many parts give that of the whole, also beyond 4 GiB', { tags: 'slow' }, () => {
  const parts = ['one', 'and another', '', 'the last'].map((text) => Buffer.from(text));
  const described = parts.map((part) => ({ bytes: part.length, crc32: crc32(part).toString(16).padStart(8, '0') }));
  expect(crc32Of(described)).toBe(crc32(Buffer.concat(parts)).toString(16).padStart(8, '0'));

  // Six GiB of zeros, by hand in pieces of one MiB.
  const mib = Buffer.alloc(2 ** 20);
  let whole = crc32('head');
  for (let i = 0; i < 6144; i++) whole = crc32(mib, whole);
  let zeros = crc32(mib);
  for (let bytes = 2 ** 20; bytes < 4 * 2 ** 30; bytes *= 2) zeros = crc32Combine(zeros, zeros, bytes);
  let two = crc32(mib);
  for (let bytes = 2 ** 20; bytes < 2 * 2 ** 30; bytes *= 2) two = crc32Combine(two, two, bytes);
  const six = crc32Combine(zeros, two, 2 * 2 ** 30);
  expect(crc32Combine(crc32('head'), six, 6 * 2 ** 30)).toBe(whole);
});
