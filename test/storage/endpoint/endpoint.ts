import { ListMultipartUploadsCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe } from 'vitest';
import type { S3Options } from '../../../src/storage/s3/client.ts';
import { isUnsupported } from '../../../src/storage/s3/errors.ts';
import { openS3 } from '../../../src/storage/s3/s3.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { lockedObjects } from '../conformance/locked-objects.ts';
import { conformance } from '../conformance.ts';

const options = JSON.parse(process.env.STORAGE_CONFORMANCE!) as S3Options;
const { bucket, prefix, endpoint, region, forcePathStyle } = options;

conformance(`the bucket ${bucket} at ${endpoint}`, async () => {
  const raw = new S3Client({ endpoint, region, forcePathStyle } as never);
  const storage = await openS3({ ...options, contentHash: true });
  return {
    storage,
    async leftovers() {
      const listed = raw.send(new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: `${prefix}/` }));
      const { Uploads = [] } = await listed.catch((error) => {
        // Some servers cannot list them.
        if (!isUnsupported(error)) throw error;
        return { Uploads: [] };
      });
      // Others return those of the whole bucket.
      return Uploads.map(({ Key }) => Key!).filter((key) => key.startsWith(`${prefix}/`));
    },
    async clear() {
      for (const { key } of await Array.fromAsync(storage.list(''))) await storage.remove(key);
      await storage.close();
      raw.destroy();
    },
  };
});

if (options.objectLock) {
  describe(`the bucket ${bucket} at ${endpoint}, with S3_OBJECT_LOCK`, () => {
    let storage: Storage;
    beforeAll(async () => {
      storage = await openS3({ ...options, contentHash: true });
    });
    afterAll(() => storage?.close());
    lockedObjects(() => storage);
  });
}
