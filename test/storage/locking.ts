import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CreateBucketCommand, ListObjectVersionsCommand, S3Client } from '@aws-sdk/client-s3';
import { inject } from 'vitest';
import { installed } from '../support/installed.ts';
import { newScene } from '../support/scene.ts';
import { type S3Server, startMinio, startVersity } from '../support/services.ts';

type Start = (home: string, stops: (() => Promise<unknown>)[]) => Promise<S3Server | undefined>;
const ceph = inject('s3');

/** The servers with Object Lock, and whether each is installed. */
export const locking: { name: string; start: Start; there: boolean }[] = [
  { name: 'MinIO', start: startMinio, there: await installed('minio') },
  {
    name: 'Versity S3 Gateway',
    start: (home, stops) => startVersity(home, stops, { versions: true }),
    there: await installed('versitygw'),
  },
  { name: 'Ceph RGW', start: async () => ceph, there: ceph !== undefined },
];

/** Starts one of them. Its keys are in the environment, as for asset-mirror. */
export async function startLocking(start: Start) {
  const stops: (() => Promise<unknown>)[] = [];
  const home = await mkdtemp(join(tmpdir(), 'asset-mirror-lock-'));
  stops.push(() => rm(home, { recursive: true, force: true }));
  const server = (await start(home, stops))!;
  const { endpoint, region, accessKey: accessKeyId, secretKey: secretAccessKey } = server;
  const raw = new S3Client({ endpoint, region, forcePathStyle: true, credentials: { accessKeyId, secretAccessKey } });
  process.env.AWS_ACCESS_KEY_ID = accessKeyId;
  process.env.AWS_SECRET_ACCESS_KEY = secretAccessKey;
  return {
    server,
    raw,
    /** A new bucket with Object Lock, without a default retention. */
    async newBucket(): Promise<string> {
      const bucket = `locked-${randomUUID()}`;
      await raw.send(new CreateBucketCommand({ Bucket: bucket, ObjectLockEnabledForBucket: true }));
      return bucket;
    },
    /** All versions and delete markers, by key. */
    async versions(bucket: string) {
      const { Versions = [], DeleteMarkers = [] } = await raw.send(new ListObjectVersionsCommand({ Bucket: bucket }));
      return [...Versions, ...DeleteMarkers].map((version) => ({
        key: version.Key!,
        id: version.VersionId!,
        bytes: 'Size' in version ? Number(version.Size) : 0,
        isMarker: !('Size' in version),
      }));
    },
    async stop(): Promise<void> {
      raw.destroy();
      for (const stop of stops.reverse()) await stop();
    },
  };
}

/** A scene whose bucket has Object Lock, on one of them, with this S3_OBJECT_LOCK. */
export async function newLockedScene(start: Start, S3_OBJECT_LOCK: string) {
  const place = await startLocking(start);
  const bucket = await place.newBucket();
  const { endpoint, region } = place.server;
  const at = { STORAGE_URL: `s3://${bucket}`, S3_ENDPOINT: endpoint, S3_REGION: region, S3_FORCE_PATH_STYLE: 'true' };
  const scene = await newScene({ environment: { ...at, S3_OBJECT_LOCK } });
  return {
    ...{ place, bucket, scene },
    async close() {
      await scene.close();
      await place.stop();
    },
  };
}
