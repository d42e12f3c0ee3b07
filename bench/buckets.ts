import { CreateBucketCommand, DeleteObjectsCommand, ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';
import type { S3Server } from '../test/support/services.ts';

export const newBucket = (s3: S3Server, bucket: string) =>
  asOwner(s3, async (client) => {
    await client.send(new CreateBucketCommand({ Bucket: bucket }));
  });

/** All objects below a prefix. */
export const removeObjects = (s3: S3Server, bucket: string, prefix: string) =>
  asOwner(s3, async (client) => {
    for (;;) {
      const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix }));
      if (Contents.length === 0) return;
      const Objects = Contents.map(({ Key }) => ({ Key }));
      const { Errors = [] } = await client.send(new DeleteObjectsCommand({ Bucket: bucket, Delete: { Objects } }));
      if (Errors.length > 0) throw new Error(`${Errors[0]!.Key} is not removed: ${Errors[0]!.Message}`);
    }
  });

async function asOwner(s3: S3Server, work: (client: S3Client) => Promise<void>): Promise<void> {
  const client = new S3Client({
    endpoint: s3.endpoint,
    region: s3.region,
    forcePathStyle: true,
    credentials: { accessKeyId: s3.accessKey, secretAccessKey: s3.secretKey },
  });
  await work(client);
  client.destroy();
}
