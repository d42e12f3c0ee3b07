import type { Readable } from 'node:stream';
import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { unlessAborted } from '../abort.ts';
import { metered, type Sums, sumsOf, WrongLength } from '../meter.ts';
import type { PutOptions, Stored } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { summing } from './checksum-support.ts';
import { unquoted } from './client.ts';
import type { PutAnswer } from './send.ts';

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

/** Streams a body of known length in one PUT. */
export async function writeStream(
  bucket: Bucket,
  key: string,
  body: Readable,
  put: PutOptions & { bytes: number },
): Promise<Stored> {
  const { bytes, signal, fence } = put;
  const summed = bucket.howToProve().then(summing);
  const meter = metered(body, { expected: bytes, fence, signal, ready: summed });
  try {
    const checksum = (await unlessAborted(summed, signal)).checksumOf(meter);
    const answer = await bucket.send({ target: bucket.target(key, put), body: meter, bytes, checksum, signal });
    if (!meter.whole) throw new Error(`store ${key}: the store answered before it had the whole body`);
    const etag = await proveStored(bucket, key, meter, answer);
    return { key, bytes, etag, checksums: meter.checksums() };
  } catch (error) {
    signal?.throwIfAborted();
    throw meter.bodyError ?? (await bucket.failure(error, signal));
  } finally {
    body.destroy();
    meter.destroy();
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
  if (answered && sent.etag) {
    await compare('ETag', answered, sent.etag);
    return answered;
  }
  if (answer.crc32) {
    await compare('CRC-32', Buffer.from(answer.crc32, 'base64').toString('hex'), sent.checksums().crc32);
    return answered;
  }
  const found = await bucket.describe(key);
  if (!found) throw new Error(`store ${key}: the store accepted it, but does not have it`);
  // Another ETag means that another writer has replaced it since.
  if (answered && found.etag !== answered) return answered;
  await compare('length', found.bytes, sent.passed);
  if (found.etag && sent.etag) await compare('ETag', found.etag, sent.etag);
  return found.etag;
}

/** Another writer may have replaced the object: it is removed only if it has the ETag of our answer. */
async function removeWrong(bucket: Bucket, key: string, answered: string | undefined): Promise<void> {
  const found = await bucket.describe(key).catch(() => undefined);
  if (!answered || found?.etag !== answered) return;
  await bucket.client.send(new DeleteObjectCommand(bucket.at(key))).catch(() => {});
}
