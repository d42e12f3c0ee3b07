import { Readable } from 'node:stream';
import { DeleteObjectCommand, HeadObjectCommand } from '@aws-sdk/client-s3';
import { StorageUnavailable } from '../../floor/errors.ts';
import type { Storage } from '../storage.ts';
import { Bucket } from './bucket.ts';
import { probeKey } from './checksum-support.ts';
import type { S3Options } from './client.ts';
import { classify, hasNoObject, isNotFound, statusOf } from './errors.ts';
import { keep } from './keep.ts';
import { linksTo } from './link.ts';
import { list } from './list.ts';
import { s3Uploads } from './multipart-uploads.ts';
import { extendLock } from './object-lock.ts';
import { purge } from './purge.ts';
import { readObject } from './read.ts';
import { sweepUploads } from './sweep.ts';
import { writeBytes, writeOnce } from './write.ts';
import { writeInParts } from './write-unknown-length.ts';

/** The largest body of one PUT (S3 user guide, "Uploading objects"). */
const largestPut = 5 * 2 ** 30;

/** Objects in an S3-compatible store. */
export async function openS3(options: S3Options): Promise<Storage> {
  const bucket = new Bucket(options);
  const { client, name } = bucket;
  const uploads = s3Uploads(bucket);
  return {
    name,
    hashes: options.contentHash ?? false,
    put(key, body, put = {}) {
      if (!(body instanceof Readable)) return writeBytes(bucket, key, body, put);
      const { bytes = Number.POSITIVE_INFINITY } = put;
      return bytes > largestPut
        ? writeInParts(bucket, key, body, put)
        : writeOnce(bucket, key, body, { ...put, bytes });
    },
    uploads,
    get: (key, options) => readObject(bucket, key, options),
    links: linksTo(bucket),
    head: (key, { signal, versionId } = {}) => bucket.describe(key, signal, versionId),
    list: (prefix, { signal } = {}) => list(bucket, prefix, signal),
    keep: (key, as, options = {}) => keep(bucket, { key, as, ...options }),
    async remove(key, { versionId: VersionId } = {}) {
      await client.send(new DeleteObjectCommand({ ...bucket.at(key), VersionId })).catch(async (error) => {
        // Google Cloud Storage refuses to remove what does not exist.
        if (hasNoObject(error)) return;
        // A version may be locked, which says nothing about the store.
        if (VersionId && statusOf(error) === 403)
          throw new Error(`remove ${key}: this version may not be removed`, { cause: error });
        throw await bucket.failure(error);
      });
    },
    purge: (at, options = {}) => purge(bucket, at, options),
    sweep: (what) =>
      sweepUploads(client, options, what, uploads.abort).catch((error) => {
        what.signal?.throwIfAborted();
        throw classify(error, name);
      }),
    lock: options.objectLock && {
      ms: options.objectLock.ms,
      place: `${bucket.name} at ${options.endpoint ?? 'AWS'}`,
      extend: (key, more) => extendLock(bucket, key, more),
    },
    check: () =>
      check(bucket).catch((error) => {
        const reason = classify(error, name);
        throw reason instanceof StorageUnavailable
          ? reason
          : new StorageUnavailable(`${name}: the store cannot be used`, { cause: reason });
      }),
    async close() {
      client.destroy();
    },
  };
}

/** See `Storage.check`. */
async function check(bucket: Bucket): Promise<void> {
  // A stream, because some stores accept a buffer but refuse a stream.
  await writeOnce(bucket, probeKey, Readable.from([Buffer.from('probe')]), { bytes: 5 });
  const at = bucket.at(probeKey);
  // Another process may remove its own probe from the same key.
  const ignoreMissing = (error: unknown) => {
    if (!isNotFound(error)) throw error;
  };
  const found = await bucket.client.send(new HeadObjectCommand(at)).catch(ignoreMissing);
  const { VersionId } = found ?? {};
  const removed = bucket.client.send(new DeleteObjectCommand({ ...at, VersionId }));
  // A version may be locked, or its removal denied. Without versions, the removal must work.
  await removed.catch(VersionId ? () => {} : ignoreMissing);
}
