import { createHash } from 'node:crypto';
import { HeadObjectCommand, ListObjectVersionsCommand, PutBucketVersioningCommand } from '@aws-sdk/client-s3';
import { create as contentDisposition, parse } from 'content-disposition';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { StorageUnavailable } from '../../../src/floor/errors.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, lengths, MiB, streaming } from '../bodies.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { newLine } from '../line.ts';

const s3 = inject('s3')!;
if (!s3) test.skip('S3 is not tested: no server is installed');

const md5 = (bytes: Buffer) => createHash('md5').update(bytes).digest('hex');

describe.runIf(s3)('an S3 store', () => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  beforeAll(async () => {
    ground = await newBucket(s3);
  });
  afterAll(() => ground?.clear());

  describe('an object in S3', () => {
    const head = (Key: string) => ground.raw.send(new HeadObjectCommand({ Bucket: ground.bucket, Key }));

    test.each(lengths)(
      'an object in S3 has its content type, its name in UTF-8 and its metadata (%s)',
      async (_, length, declared) => {
        const name = 'Grüße, "100 %" & 🎬; naïve.mp4';
        await ground.storage.put('carries', streaming(bytesOf(length)), {
          bytes: declared,
          contentType: 'video/mp4',
          contentDisposition: contentDisposition(name),
          metadata: { 'asset-id': 'a%2F1', 'upload-date': '1700000000', variant: 'original' },
        });
        const found = await head('carries');
        expect(found.ContentType).toBe('video/mp4');
        expect(parse(found.ContentDisposition!).parameters.filename).toBe(name);
        expect(found.Metadata).toEqual({ 'asset-id': 'a%2F1', 'upload-date': '1700000000', variant: 'original' });
      },
    );

    test('an object in S3 has the general content type if none is given', async () => {
      await ground.storage.put('plain', 'x');
      expect((await head('plain')).ContentType).toBe('application/octet-stream');
    });

    test.each(['vidéo/mp4', 'video/mp4; name=“clip”', 'text/plain\r\nx-evil: 1', `a/${'b'.repeat(9000)}`])(
      'an object in S3 has the general content type if its own cannot be a header (%.20s)',
      async (contentType) => {
        await ground.storage.put('untyped', 'x', { contentType });
        expect((await head('untyped')).ContentType).toBe('application/octet-stream');
      },
    );

    test('an object in S3 is stored below the prefix, and listed without it', async () => {
      const storage = await openBucket(s3, { bucket: ground.bucket, prefix: 'pre/fix' });
      await storage.put('one', 'x');
      expect((await head('pre/fix/one')).ContentLength).toBe(1);
      expect((await Array.fromAsync(storage.list(''))).map((object) => object.key)).toEqual(['one']);
      expect(storage.name).toBe(`s3://${ground.bucket}/pre/fix`);
      await storage.close();
    });

    test('a check leaves no version behind where versions are kept', async () => {
      const own = await newBucket(s3);
      try {
        await own.raw.send(
          new PutBucketVersioningCommand({ Bucket: own.bucket, VersioningConfiguration: { Status: 'Enabled' } }),
        );
        await own.storage.check();
        const left = await own.raw.send(new ListObjectVersionsCommand({ Bucket: own.bucket }));
        expect([...(left.Versions ?? []), ...(left.DeleteMarkers ?? [])]).toEqual([]);
      } finally {
        await own.clear();
      }
    });

    test.each(lengths.slice(0, 3))(
      'an object in S3 has its MD5 as ETag, and the two were compared (%s)',
      async (_, length, declared) => {
        const bytes = bytesOf(length);
        const stored = await ground.storage.put('proven', streaming(bytes), { bytes: declared });
        expect(stored).toMatchObject({ etag: md5(bytes), checksums: { md5: md5(bytes) } });
      },
    );
  });

  describe('S3_CHECKSUMS', () => {
    const opened: Storage[] = [];
    const open = async (checksums: 'sha256' | 'crc32' | 'md5-etag' | 'none' | 'auto') => {
      const storage = await openBucket(s3, { bucket: ground.bucket, checksums });
      opened.push(storage);
      return storage;
    };
    afterAll(() => Promise.all(opened.map((storage) => storage.close())));

    test.each(['none', 'md5-etag', 'auto'] as const)('S3_CHECKSUMS=%s works with this store', async (checksums) => {
      const storage = await open(checksums);
      await storage.check();
      const stored = await storage.put('checked', streaming(bytesOf(MiB)), { bytes: MiB });
      expect(Object.keys(stored.checksums)).toEqual(
        checksums === 'none' ? ['crc32', 'sha256'] : ['crc32', 'md5', 'sha256'],
      );
    });

    test.each(['sha256', 'crc32'] as const)(
      'S3_CHECKSUMS=%s, which this store does not support, is reported before anything is lost',
      async (checksums) => {
        const storage = await open(checksums);
        await expect(storage.check()).rejects.toThrow(/accepts no checksum after a stream; set S3_CHECKSUMS/);
        const body = streaming(bytesOf(MiB));
        await expect(storage.put('trailer', body, { bytes: MiB })).rejects.toBeInstanceOf(StorageUnavailable);
        expect(body.destroyed).toBe(true);
        expect(await storage.head('trailer')).toBeUndefined();
      },
    );
  });

  test('no socket stays open after the store was closed', async () => {
    const line = await newLine(s3.endpoint);
    const storage = await openBucket(s3, { bucket: ground.bucket, endpoint: line.endpoint });
    await storage.check();
    await storage.put('close', streaming(bytesOf(8 * MiB)), { bytes: 8 * MiB });
    await storage.close();
    await until('all sockets closed', () => line.open === 0);
    await line.close();
  });
});
