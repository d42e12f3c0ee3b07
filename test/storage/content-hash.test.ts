import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { BlockHashes, blockBytes, checksumsOfParts } from '../../src/storage/content-hash.ts';
import { partBytesFor } from '../../src/storage/storage.ts';
import { contentHash } from '../support/content-hash.ts';

const MiB = 2 ** 20;
const GiB = 2 ** 30;
const content = randomBytes(3 * blockBytes);

function blocksOf(bytes: Buffer, chunk: number): string[] {
  const hashes = new BlockHashes();
  for (let from = 0; from < bytes.length; from += chunk) hashes.update(bytes.subarray(from, from + chunk));
  return hashes.blocks();
}
const hashOf = (bytes: Buffer, chunk = 64 * 1024) => {
  const part = { bytes: bytes.length, crc32: '00000000', blocks: blocksOf(bytes, chunk) };
  return checksumsOfParts({ partBytes: bytes.length }, [part]).sha256;
};

describe('a content hash', () => {
  test.each([0, 1, 65_537, blockBytes])('the content hash of %i bytes is their SHA-256', (length) => {
    const bytes = content.subarray(0, length);
    expect(hashOf(bytes)).toBe(createHash('sha256').update(bytes).digest('hex'));
  });

  test.each([blockBytes + 1, 2 * blockBytes, 2 * blockBytes + 65, 3 * blockBytes])(
    'the content hash of %i bytes is the root over their blocks, however they arrive',
    (length) => {
      const bytes = content.subarray(0, length);
      const expected = contentHash(bytes);
      expect(expected).toMatch(new RegExp(`^[\\da-f]{64}-${Math.ceil(length / blockBytes)}$`));
      for (const chunk of [64 * 1024, 5 * MiB + 1, 40 * MiB]) expect(hashOf(bytes, chunk)).toBe(expected);
    },
  );

  test('parts that are not whole blocks, or were not hashed, have no content hash', () => {
    const part = (blocks: string[] | null) => ({ bytes: 1, crc32: '00000000', blocks });
    const sha256 = 'aa'.repeat(32);
    expect(checksumsOfParts({ partBytes: 5 * MiB }, [part([sha256]), part([sha256])])).not.toHaveProperty('sha256');
    expect(checksumsOfParts({ partBytes: blockBytes }, [part([sha256]), part(null)])).not.toHaveProperty('sha256');
    expect(checksumsOfParts({ partBytes: 5 * MiB }, [part([sha256])])).toMatchObject({ sha256 });
  });

  test.each([33 * MiB, 10 * GiB, 157 * GiB, 5 * 2 ** 40])(
    'the parts of a large file of %i bytes are whole blocks, and at most 10,000',
    (bytes) => {
      expect(partBytesFor(bytes) % blockBytes).toBe(0);
      expect(Math.ceil(bytes / partBytesFor(bytes))).toBeLessThanOrEqual(10_000);
    },
  );
});
