import type { Readable } from 'node:stream';
import { unlessAborted } from '../abort.ts';
import { metered, type Sums, sumsOf } from '../meter.ts';
import type { Upload } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { algorithmFor, type ChecksumMethod, checksumOf } from './checksum-support.ts';
import type { PutAnswer, PutRequest } from './send.ts';

interface Body extends Pick<PutRequest, 'target' | 'signal'> {
  part?: (PutRequest['part'] & Pick<Upload, 'checksum'>) | undefined;
  body: Readable | Buffer;
  bytes: number;
  fence?: (() => Promise<void>) | undefined;
}

/**
 * Sends an object or a part with its checksum. Returns the answer of the store, and what was sent. A stream is destroyed in
 * any case. @throws the reason of the signal, an error of the stream unchanged, or the result of `failure` for other errors
 */
export async function sendBody(
  bucket: Bucket,
  { body, fence, ...request }: Body,
  failure: (error: unknown) => Promise<unknown>,
): Promise<{ answer: PutAnswer; sent: Sums }> {
  const { bytes, signal } = request;
  const algorithmOf = (method: ChecksumMethod) => (request.part ? request.part.checksum : algorithmFor(method, bytes));
  const summed = bucket
    .checksumMethod()
    .then((method) => ({ md5: method === 'md5-etag', algorithm: algorithmOf(method) }));
  const hashed = bucket.options.contentHash || request.part?.checksum === 'sha256';
  const meter = Buffer.isBuffer(body)
    ? undefined
    : metered(body, { expected: bytes, fence, hashed, signal, ready: summed });
  try {
    const { md5, algorithm } = await unlessAborted(summed, signal);
    const sent = meter ?? sumsOf(body as Buffer, { md5, hashed });
    const checksum = checksumOf(algorithm, sent);
    const answer = await bucket.send({ ...request, body: meter ?? (body as Buffer), checksum });
    if (meter && !meter.whole)
      throw new Error(`store ${request.target.Key}: the store answered before it had the whole body`);
    return { answer, sent };
  } catch (error) {
    signal?.throwIfAborted();
    throw meter?.bodyError ?? (await failure(error));
  } finally {
    if (!Buffer.isBuffer(body)) body.destroy();
    meter?.destroy();
  }
}
