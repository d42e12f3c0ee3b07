import { GetObjectRetentionCommand, HeadObjectCommand, PutObjectRetentionCommand } from '@aws-sdk/client-s3';
import type { LockOptions } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { codeOf, isNotFound, statusOf } from './errors.ts';

/** See `ObjectLock`. */
export async function extendLock(
  bucket: Bucket,
  key: string,
  { versionId, atMost }: LockOptions = {},
): Promise<Date | undefined> {
  const { mode, ms } = bucket.options.objectLock!;
  const now = Date.now();
  const last = atMost?.getTime() ?? Number.POSITIVE_INFINITY;
  try {
    const lock = versionId === undefined ? await currentLock(bucket, key) : await lockOf(bucket, key, versionId);
    const { VersionId, RetainUntilDate: until } = lock;
    if (until && until.getTime() >= Math.min(now + ms / 2, last)) return until;
    const RetainUntilDate = new Date(Math.min(now + ms, last));
    // Stores refuse to change the mode of a lock that has not ended.
    const Mode = until && until.getTime() > now ? lock.Mode : mode;
    const Retention = { Mode, RetainUntilDate };
    await bucket.client.send(new PutObjectRetentionCommand({ ...bucket.at(key), VersionId, Retention }));
    return RetainUntilDate;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw await bucket.failure(error);
  }
}

async function currentLock(bucket: Bucket, key: string) {
  const head = await bucket.client.send(new HeadObjectCommand(bucket.at(key)));
  const { VersionId, ObjectLockMode: Mode, ObjectLockRetainUntilDate: RetainUntilDate } = head;
  return { VersionId, Mode, RetainUntilDate };
}

/** The lock of a version. It is not read by HEAD: for an older version, the Versity gateway leaves the lock out of that answer. */
export async function lockOf(bucket: Bucket, key: string, VersionId: string) {
  const command = new GetObjectRetentionCommand({ ...bucket.at(key), VersionId });
  const found = await bucket.client.send(command).catch((error) => {
    // The version has no lock. If the version does not exist, the store refuses to lock it with 404, too.
    if (statusOf(error) !== 404 && codeOf(error) !== 'NoSuchObjectLockConfiguration') throw error;
  });
  return { ...found?.Retention, VersionId };
}
