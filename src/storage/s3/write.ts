import type { Readable } from 'node:stream';
import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { Upload as StreamUpload } from '@aws-sdk/lib-storage';
import { unlessAborted } from '../abort.ts';
import { type Meter, metered, type Sums, sumsOf, WrongLength } from '../meter.ts';
import type { PutOptions, Stored } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { crc32OfWhole, summing } from './checksum-support.ts';
import { unquoted } from './client.ts';
import type { PutAnswer } from './send.ts';
import { isMd5OfParts } from './uploads.ts';

/** The largest body of one PUT (S3 user guide, "Uploading objects"). */
const largestPut = 5 * 2 ** 30;
const mostParts = 10_000;

export async function writeBytes(
  bucket: Bucket,
  key: string,
  given: Buffer | string,
  put: PutOptions,
): Promise<Stored> {
  const { signal, fence } = put;
  // The caller may change its buffer while this waits.
  const body = Buffer.from(given);
  const bytes = body.length;
  if (put.bytes !== undefined && put.bytes !== bytes) {
    throw new WrongLength(`the body has ${bytes} bytes, not ${put.bytes}`);
  }
  const proof = await unlessAborted(bucket.howToProve(), signal);
  const { md5, onChunk, checksumOf } = summing(proof);
  const sums = sumsOf(body, { md5 });
  onChunk?.(body);
  if (fence) await unlessAborted(fence(), signal);
  signal?.throwIfAborted();
  try {
    const target = bucket.target(key, put);
    const answer = await bucket.send({ target, body, bytes, checksum: checksumOf(sums), signal });
    const etag = await proveStored(bucket, key, sums, answer);
    return { key, bytes, etag, checksums: sums.checksums() };
  } catch (error) {
    signal?.throwIfAborted();
    throw await bucket.failure(error, signal);
  }
}

/**
 * A body of known length is one streamed PUT. One that is too long for a PUT, or of unknown length, goes through
 * lib-storage's Upload, which buffers four parts and cannot be resumed.
 */
export async function writeStream(bucket: Bucket, key: string, body: Readable, put: PutOptions): Promise<Stored> {
  const { bytes: expected, signal, fence } = put;
  const inParts = expected === undefined || expected > largestPut;
  const partBytes = inParts ? Math.max(16 * 2 ** 20, Math.ceil((expected ?? 0) / mostParts)) : undefined;
  const summed = bucket.howToProve().then(summing);
  const meter = metered(body, { expected, partBytes, fence, signal, ready: summed });
  try {
    const { checksumOf } = await unlessAborted(summed, signal);
    const checksum = checksumOf(meter);
    const answer = inParts
      ? await uploadStream(bucket, key, meter, { ...put, summed: checksum !== undefined }, partBytes!)
      : await bucket.send({ target: bucket.target(key, put), body: meter, bytes: expected, checksum, signal });
    if (!meter.whole) throw new Error(`store ${key}: the store answered before it had the whole body`);
    const etag = await proveStored(bucket, key, meter, answer);
    return { key, bytes: meter.passed, etag, checksums: meter.checksums() };
  } catch (error) {
    signal?.throwIfAborted();
    throw meter.bodyError ?? (await bucket.failure(error, signal));
  } finally {
    body.destroy();
    meter.destroy();
  }
}

/** If it fails, its parts are removed. */
async function uploadStream(
  bucket: Bucket,
  key: string,
  body: Meter,
  { signal, summed, ...put }: PutOptions & { summed: boolean },
  partSize: number,
): Promise<PutAnswer> {
  const upload = new StreamUpload({
    client: bucket.client,
    params: { ...bucket.target(key, put), Body: body, ...(summed && crc32OfWhole) },
    queueSize: 4,
    partSize,
    leavePartsOnError: false,
  });
  // Rejects at once; the parts under way end in the background, and are removed then.
  const stop = () => void upload.abort();
  signal?.addEventListener('abort', stop, { once: true });
  try {
    const { ETag, ChecksumCRC32, VersionId } = await upload.done();
    return { etag: ETag, crc32: ChecksumCRC32, crc64nvme: undefined, versionId: VersionId };
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** Compares what the store has with what was sent, and returns its ETag. A wrong object is removed. */
async function proveStored(bucket: Bucket, key: string, sent: Sums, answer: PutAnswer): Promise<string | undefined> {
  // Some stores answer with an empty ETag.
  const answered = unquoted(answer.etag) || undefined;
  const compare = async (what: string, actual: string | number, expected: string | number) => {
    if (actual === expected) return;
    await removeWrong(bucket, key, answered);
    throw new Error(`store ${key}: the store has ${what} ${actual} instead of ${expected}`);
  };
  // Some stores have their own form of ETag for an upload in parts: it proves nothing.
  const comparable = (etag: string) => (sent.etag && (!sent.etag.includes('-') || isMd5OfParts(etag)) ? sent.etag : '');
  if (answered && comparable(answered)) {
    await compare('ETag', answered, comparable(answered));
    return answered;
  }
  if (answer.crc32 && !answer.crc32.includes('-')) {
    await compare('CRC-32', Buffer.from(answer.crc32, 'base64').toString('hex'), sent.checksums().crc32);
    return answered;
  }
  const found = await bucket.describe(key);
  if (!found) throw new Error(`store ${key}: the store accepted it, but does not have it`);
  // Another ETag means that another writer has replaced it since.
  if (answered && found.etag !== answered) return answered;
  await compare('length', found.bytes, sent.passed);
  if (found.etag && comparable(found.etag)) await compare('ETag', found.etag, comparable(found.etag));
  return found.etag;
}

/** Another writer may have replaced the object: it is removed only if it has the ETag of our answer. */
async function removeWrong(bucket: Bucket, key: string, answered: string | undefined): Promise<void> {
  const found = await bucket.describe(key).catch(() => undefined);
  if (!answered || found?.etag !== answered) return;
  await bucket.client.send(new DeleteObjectCommand(bucket.at(key))).catch(() => {});
}
