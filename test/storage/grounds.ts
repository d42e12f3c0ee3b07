import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  AbortMultipartUploadCommand,
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import { openDirectory } from '../../src/storage/directory/directory.ts';
import type { S3Options } from '../../src/storage/s3/client.ts';
import { openS3 } from '../../src/storage/s3/s3.ts';
import type { S3Server } from '../support/services.ts';
import type { Ground } from './conformance/ground.ts';

const run = promisify(execFile);

/** Whether this process may mount disks of its own. */
export const canMount = process.getuid?.() === 0 && (await mountable());

export async function newDirectory(): Promise<Ground & { path: string }> {
  const home = await mkdtemp(join(tmpdir(), 'asset-mirror-storage-'));
  const path = join(home, 'mirror');
  const storage = await openDirectory({ path, contentHash: true });
  return {
    storage,
    path,
    leftovers: () => readdir(join(path, '.asset-mirror-tmp')),
    async clear() {
      await storage.close();
      await rm(home, { recursive: true, force: true });
    },
  };
}

/** A new bucket, and the store in it, or below a prefix. */
export async function newBucket(server: S3Server, options: Partial<S3Options> = {}) {
  const bucket = `storage-${randomUUID()}`;
  const raw = new S3Client({
    endpoint: server.endpoint,
    region: server.region,
    forcePathStyle: true,
    credentials: { accessKeyId: server.accessKey, secretAccessKey: server.secretKey },
  });
  await raw.send(new CreateBucketCommand({ Bucket: bucket }));
  const storage = await openBucket(server, { bucket, ...options });
  return {
    storage,
    bucket,
    raw,
    async leftovers() {
      const { Uploads = [] } = await raw.send(new ListMultipartUploadsCommand({ Bucket: bucket }));
      return Uploads.map((upload) => upload.Key!);
    },
    async abort(Key: string, UploadId: string) {
      await raw.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId }));
    },
    async clear() {
      await storage.close();
      await removeBucket(raw, bucket);
      raw.destroy();
    },
  };
}

/** Opens it like asset-mirror: the keys come from the environment. */
export async function openBucket(server: S3Server, options: Partial<S3Options> & { bucket: string }) {
  process.env.AWS_ACCESS_KEY_ID = server.accessKey;
  process.env.AWS_SECRET_ACCESS_KEY = server.secretKey;
  return openS3({
    prefix: '',
    endpoint: server.endpoint,
    region: server.region,
    forcePathStyle: true,
    checksums: 'auto',
    contentHash: true,
    connections: 24,
    ...options,
  });
}

export async function removeBucket(raw: S3Client, bucket: string): Promise<void> {
  for (;;) {
    const { Contents = [] } = await raw.send(new ListObjectsV2Command({ Bucket: bucket }));
    if (Contents.length === 0) break;
    await Promise.all(Contents.map(({ Key }) => raw.send(new DeleteObjectCommand({ Bucket: bucket, Key }))));
  }
  await raw.send(new DeleteBucketCommand({ Bucket: bucket }));
}

async function mountable(): Promise<boolean> {
  const place = await mkdtemp(join(tmpdir(), 'asset-mirror-mount-'));
  try {
    await run('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', place]);
    await run('umount', [place]);
    return true;
  } catch {
    return false;
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}
