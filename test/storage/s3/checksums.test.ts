import { HeadObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { contentHash } from '../../support/content-hash.ts';
import { bytesOf, collected, crc32Of, MiB, streaming } from '../bodies.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { newLine } from '../line.ts';

const server = inject('s3modern')!;
if (!server) test.skip('S3 with checksums of whole objects is not tested: versitygw is not installed');

const lengths: [string, number, number | undefined][] = [
  ['1 MiB', MiB, MiB],
  ['40 MiB in parts', 40 * MiB, undefined],
];

describe.runIf(server).each(['crc32', 'crc64nvme'] as const)(
  'S3_CHECKSUMS=%s, where the store knows it',
  (checksums) => {
    const field = checksums === 'crc32' ? 'ChecksumCRC32' : 'ChecksumCRC64NVME';
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

    test.each(lengths)('the store keeps the checksum of the whole object (%s)', async (_, length, declared) => {
      const bytes = bytesOf(length);
      const crc32 = crc32Of(bytes);
      await ground.storage.check();
      const stored = await ground.storage.put('whole', streaming(bytes), { bytes: declared });
      expect(stored.checksums).toEqual({ crc32, sha256: contentHash(bytes) });
      const head = await ground.raw.send(
        new HeadObjectCommand({ Bucket: ground.bucket, Key: 'whole', ChecksumMode: 'ENABLED' }),
      );
      expect(head).toMatchObject({ ContentLength: length, ChecksumType: 'FULL_OBJECT' });
      // CRC-64 of parts cannot be combined by the mirror, so an upload in parts has CRC-32.
      if (checksums === 'crc32' || declared === undefined) {
        expect(Buffer.from(head.ChecksumCRC32!, 'base64').toString('hex')).toBe(crc32);
      } else {
        expect(Buffer.from(head[field]!, 'base64')).toHaveLength(8);
      }
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
  },
);
