import { CreateBucketCommand, DeleteBucketCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { reasonOf, StorageUnavailable } from '../../../src/floor/errors.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { newCertificates } from '../../support/certificates.ts';
import { freePort } from '../../support/ports.ts';
import { newTlsFront } from '../../support/proxy.ts';
import { bytesOf, lengths, streaming } from '../bodies.ts';
import { newBucket, openBucket, removeBucket } from '../grounds.ts';

const s3 = inject('s3')!;

describe.runIf(s3)('an S3 store', () => {
  let ground: Awaited<ReturnType<typeof newBucket>>;
  beforeAll(async () => {
    ground = await newBucket(s3);
  });
  afterAll(() => ground?.clear());

  describe('causes that make the whole store unavailable', () => {
    const expectUnavailable = async (storage: Storage, message: RegExp) => {
      for (const attempt of [
        () => storage.check(),
        () => storage.put('fault', 'text'),
        ...lengths.map(
          ([, length, bytes]) =>
            () =>
              storage.put('fault', streaming(bytesOf(length)), { bytes }),
        ),
        () => Array.fromAsync(storage.list('')),
        () => storage.get('fault'),
      ]) {
        const error = await attempt().then(
          () => undefined,
          (reason) => reason,
        );
        expect(error).toBeInstanceOf(StorageUnavailable);
        expect(error.message).toMatch(message);
        expect(error.message).toContain(storage.name);
      }
    };

    test('a bucket that does not exist makes the store unavailable until it exists', async () => {
      const bucket = `missing-${Date.now()}`;
      const storage = await openBucket(s3, { bucket });
      await expectUnavailable(storage, /the bucket does not exist/);
      await ground.raw.send(new CreateBucketCommand({ Bucket: bucket }));
      await storage.check();
      await storage.put('fault', 'text');
      await removeBucket(ground.raw, bucket);
      await expectUnavailable(storage, /the bucket does not exist/);
      await ground.raw.send(new CreateBucketCommand({ Bucket: bucket }));
      await storage.check();
      await ground.raw.send(new DeleteBucketCommand({ Bucket: bucket }));
      await storage.close();
    });

    test.each([
      ['a wrong secret key', { secretKey: 'not it' }, /refuses the signature; check the secret key/],
      ['an unknown access key', { accessKey: 'nobody' }, /does not know the access key/],
    ])('%s makes the store unavailable', async (_, wrong, message) => {
      const storage = await openBucket({ ...s3, ...wrong }, { bucket: ground.bucket });
      await expectUnavailable(storage, message);
      await storage.close();
      const right = await openBucket(s3, { bucket: ground.bucket });
      await right.check();
      await right.close();
    });

    test('an endpoint where nothing listens makes the store unavailable', async () => {
      const endpoint = `http://127.0.0.1:${await freePort()}`;
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint });
      await expectUnavailable(
        storage,
        /nothing listens at 127\.0\.0\.1:\d+ \(ECONNREFUSED\); start the server there, or correct S3_ENDPOINT$/,
      );
      await storage.close();
    });

    test('an endpoint without a host name for each bucket is reported with S3_FORCE_PATH_STYLE', async () => {
      const endpoint = 'http://store.invalid';
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint, forcePathStyle: false });
      const message = `the host name ${ground.bucket}.store.invalid cannot be resolved \\(ENOTFOUND\\); correct S3_ENDPOINT, or the name server, or set S3_FORCE_PATH_STYLE=true`;
      await expectUnavailable(storage, new RegExp(message));
      await storage.close();
    });

    test('https:// to a port that speaks http makes the store unavailable', async () => {
      const endpoint = s3.endpoint.replace('http:', 'https:');
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint });
      await expectUnavailable(
        storage,
        /does not speak TLS there \(\w+\); correct the scheme or the port in S3_ENDPOINT/,
      );
      expect(reasonOf(await storage.check().catch((error) => error))).not.toMatch(/openssl|SSL routines/i);
      await storage.close();
    });

    test('a certificate of an unknown authority makes the store unavailable', async () => {
      const certificates = await newCertificates();
      const front = await newTlsFront(certificates, s3.endpoint);
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint: `https://localhost:${front.port}` });
      try {
        await expectUnavailable(storage, /from an unknown authority \(\w+\); set NODE_EXTRA_CA_CERTS/);
      } finally {
        await storage.close();
        await front.close();
        await certificates.clear();
      }
    });

    test('an endpoint whose host name cannot be resolved makes the store unavailable', async () => {
      const endpoint = 'http://no-such-host.invalid';
      const storage = await openBucket(s3, { bucket: ground.bucket, endpoint });
      await expect(storage.check()).rejects.toThrow(/the host name .*no-such-host.invalid cannot be resolved/);
      await storage.close();
    });
  });
});
