import type { Readable } from 'node:stream';
import { DeleteObjectCommand } from '@aws-sdk/client-s3';
import { unlessAborted } from '../abort.ts';
import { type Sums, WrongLength } from '../meter.ts';
import type { PutOptions, Stored } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { hexOfBase64, unquoted } from './client.ts';
import type { PutAnswer } from './send.ts';
import { sendBody } from './send-body.ts';

export async function writeBytes(
  bucket: Bucket,
  key: string,
  given: Buffer | string,
  put: PutOptions,
): Promise<Stored> {
  const { fence, ...rest } = put;
  // The caller may change its buffer while this waits.
  const body = Buffer.from(given);
  if (put.bytes !== undefined && put.bytes !== body.length) {
    throw new WrongLength(`the body has ${body.length} bytes, not ${put.bytes}`);
  }
  if (fence) await unlessAborted(fence(), put.signal);
  return writeOnce(bucket, key, body, { ...rest, bytes: body.length });
}

/** Sends a body of known length in one PUT. */
export async function writeOnce(
  bucket: Bucket,
  key: string,
  body: Readable | Buffer,
  put: PutOptions & { bytes: number },
): Promise<Stored> {
  const { bytes, signal, fence } = put;
  const failure = (error: unknown) => bucket.failure(error, signal);
  const { answer, sent } = await sendBody(
    bucket,
    { target: bucket.target(key, put), body, bytes, fence, signal },
    failure,
  );
  const etag = await compareStored(bucket, key, sent, answer).catch(async (error) => {
    throw await failure(error);
  });
  return { key, bytes, etag, checksums: sent.checksums() };
}

/** Compares what the store has with what was sent, and returns its ETag. A wrong object is removed. */
async function compareStored(bucket: Bucket, key: string, sent: Sums, answer: PutAnswer): Promise<string | undefined> {
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
  const { sha256, crc32 } = answer.sums;
  const sums = sent.checksums();
  if (sha256 && sent.blocks()?.length === 1) {
    await compare('SHA-256', hexOfBase64(sha256), sums.sha256!);
    return answered;
  }
  if (crc32) {
    await compare('CRC-32', hexOfBase64(crc32), sums.crc32);
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
