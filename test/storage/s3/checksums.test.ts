import { hash } from 'node:crypto';
import { HeadObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { base64Of } from '../../../src/storage/s3/client.ts';
import { type Part, partLength } from '../../../src/storage/storage.ts';
import { contentHash } from '../../support/content-hash.ts';
import { bytesOf, collected, crc32Of, MiB, streaming } from '../bodies.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { newLine } from '../line.ts';

const server = inject('s3modern')!;
if (!server) test.skip('S3 with checksums of whole objects is not tested: versitygw is not installed');

const sha256 = (bytes: Buffer) => hash('sha256', bytes, 'base64');
/** The SHA-256 of the parts' SHA-256, as S3 keeps it (S3 user guide, "Checking object integrity"). */
function ofBlocks(bytes: Buffer): string {
  const blocks: Buffer[] = [];
  for (let from = 0; from < bytes.length; from += 16 * MiB) {
    blocks.push(hash('sha256', bytes.subarray(from, from + 16 * MiB), 'buffer'));
  }
  return `${sha256(Buffer.concat(blocks))}-${blocks.length}`;
}

const lengths: [string, number, number | undefined][] = [
  ['1 MiB', MiB, MiB],
  ['40 MiB in parts', 40 * MiB, undefined],
];

describe.runIf(server).each(['sha256', 'crc32'] as const)('S3_CHECKSUMS=%s, where the store knows it', (checksums) => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  let line: Awaited<ReturnType<typeof newLine>>;
  beforeAll(async () => {
    ground = await newBucket(server, { checksums });
    line = await newLine(server.endpoint);
  });
  afterAll(async () => {
    await line?.close();
    await ground?.clear();
  });
  afterEach(() => line.set({}));

  test.each(lengths)('the store keeps a checksum of the object (%s)', { tags: 'slow' }, async (_, length, declared) => {
    const bytes = bytesOf(length);
    const crc32 = crc32Of(bytes);
    await ground.storage.check();
    const stored = await ground.storage.put('whole', streaming(bytes), { bytes: declared });
    expect(stored.checksums).toEqual({ crc32, sha256: contentHash(bytes) });
    const head = await ground.raw.send(
      new HeadObjectCommand({ Bucket: ground.bucket, Key: 'whole', ChecksumMode: 'ENABLED' }),
    );
    const isWhole = declared !== undefined;
    const isSha256 = checksums === 'sha256';
    expect(head).toMatchObject({
      ContentLength: length,
      ChecksumType: isSha256 && !isWhole ? 'COMPOSITE' : 'FULL_OBJECT',
    });
    if (isSha256) expect(head.ChecksumSHA256).toBe(isWhole ? sha256(bytes) : ofBlocks(bytes));
    else expect(head.ChecksumCRC32).toBe(base64Of(crc32));
    expect(bytes.equals(await collected((await ground.storage.get('whole'))!))).toBe(true);
  });

  test.each(lengths)('bytes that were changed on the way are refused (%s)', async (_, length, declared) => {
    const storage = await openBucket(server, { bucket: ground.bucket, checksums, endpoint: line.endpoint });
    line.set({
      request(chunk) {
        // Only a body has that many equal bytes, not headers.
        const at = chunk.indexOf('xxxxxxxxxxxxxxxxxxxx');
        if (at >= 0) chunk[at] = 'y'.charCodeAt(0);
        return chunk;
      },
    });
    const put = storage.put('changed', streaming(Buffer.alloc(length, 'x')), { bytes: declared });
    await expect(put).rejects.toThrow();
    line.set({});
    expect(await ground.storage.head('changed')).toBeUndefined();
    expect(await ground.leftovers()).toEqual([]);
    await storage.close();
  });
});

describe.runIf(server)('the checksum of S3_CHECKSUMS=sha256', () => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  beforeAll(async () => {
    ground = await newBucket(server, { checksums: 'sha256' });
  });
  afterAll(() => ground?.clear());

  test('a single PUT of more than one block is compared by CRC-32', { tags: 'slow' }, async () => {
    const bytes = bytesOf(17 * MiB);
    await ground.storage.put('long', streaming(bytes), { bytes: bytes.length });
    const at = { Bucket: ground.bucket, Key: 'long' };
    const head = await ground.raw.send(new HeadObjectCommand({ ...at, ChecksumMode: 'ENABLED' }));
    expect(head).toMatchObject({ ChecksumCRC32: base64Of(crc32Of(bytes)), ChecksumType: 'FULL_OBJECT' });
  });

  test('without content hashes, CRC-32 is compared', async () => {
    const storage = await openBucket(server, { bucket: ground.bucket, checksums: 'sha256', contentHash: false });
    const bytes = bytesOf(MiB);
    await storage.put('unhashed', streaming(bytes), { bytes: bytes.length });
    const at = { Bucket: ground.bucket, Key: 'unhashed' };
    const head = await ground.raw.send(new HeadObjectCommand({ ...at, ChecksumMode: 'ENABLED' }));
    expect(head.ChecksumCRC32).toBe(base64Of(crc32Of(bytes)));
    await storage.close();
  });

  test.each([{ checksums: 'crc32' }, { checksums: 'md5-etag' }, { contentHash: false }] as const)(
    'an upload in parts keeps its checksums when the settings change to %j',
    { tags: 'slow' },
    async (settings) => {
      const bytes = bytesOf(33 * MiB);
      const upload = await ground.storage.uploads.begin('changed', { bytes: bytes.length });
      const other = await openBucket(server, { bucket: ground.bucket, checksums: 'sha256', ...settings });
      const parts: Part[] = [];
      for (const [number, { uploads }] of [
        [1, ground.storage],
        [2, other],
        [3, other],
      ] as const) {
        const from = (number - 1) * upload.partBytes;
        const part = streaming(bytes.subarray(from, from + partLength(upload, number)));
        parts.push(await uploads.put(upload, number, part));
      }
      const { checksums } = await other.uploads.complete(upload, parts);
      expect(checksums).toEqual({ crc32: crc32Of(bytes), sha256: contentHash(bytes) });
      const at = { Bucket: ground.bucket, Key: 'changed' };
      const head = await ground.raw.send(new HeadObjectCommand({ ...at, ChecksumMode: 'ENABLED' }));
      expect(head.ChecksumSHA256).toBe(ofBlocks(bytes));
      await other.close();
    },
  );
});
